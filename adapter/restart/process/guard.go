package process

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	ossignal "os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
)

// guardName is the argv[0] of a guard.
const guardName = "sonde-guard"

// guardCalled is whether main has called Guard. It is global, as os.Args is.
var guardCalled atomic.Bool

// Guard must be the first call in the main function of a program that uses this
// package, and in its TestMain. It returns at once, except in a guard: there it
// runs and watches a command, and exits the program instead of returning.
func Guard() {
	guardCalled.Store(true)
	if len(os.Args) == 0 || os.Args[0] != guardName {
		return
	}
	// The kernel kills the command when the thread that started it ends
	// (PR_SET_PDEATHSIG). This thread lives as long as the guard.
	runtime.LockOSThread()
	closeFilesOnExec()
	err := watch(os.NewFile(ordersFile, "orders"), os.NewFile(reportsFile, "reports"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", guardName, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// closeFilesOnExec keeps the command from inheriting the guard's descriptors, and
// descriptors that the engine's parent has left open by mistake.
func closeFilesOnExec() {
	syscall.CloseOnExec(ordersFile)
	syscall.CloseOnExec(reportsFile)
	closeRestOnExec()
}

// guard runs one command. Only one goroutine starts, kills and reaps processes, so
// that the ID of a child that is not reaped yet is never another process's.
type guard struct {
	orders   <-chan order // closed when the engine has ended
	children chan os.Signal

	keeper  *keeper // nil unless the command outlives the engine
	command int     // the command's process ID
	cgroup  cgroup
	ended   bool
	status  syscall.WaitStatus // once ended
}

// watch runs the command of the first order, and returns when it and all its
// descendants have ended. It returns an error when there is no first order.
func watch(orders io.Reader, reports io.Writer) error {
	g := guard{children: make(chan os.Signal, 1)}
	ossignal.Notify(g.children, syscall.SIGCHLD)
	g.catchSignals()
	if err := becomeSubreaper(); err != nil {
		return err
	}
	decoder := json.NewDecoder(orders)
	var first order
	if err := decoder.Decode(&first); err != nil || first.Start == nil {
		return fmt.Errorf("read the order to start: %w", err)
	}
	out := json.NewEncoder(reports) // errors are ignored: without the engine there is no one to report them to
	if err := g.start(*first.Start); err != nil {
		_ = out.Encode(report{Error: err.Error()})
		return nil
	}
	hello := report{Pid: g.command, Cgroup: g.cgroup}
	g.orders = readOrders(decoder)
	if g.keeper != nil {
		hello.ID = instanceID(g.command, first.Start.Adopt.Suffix)
		if err := g.outlive(hello); err != nil {
			g.killAll()
			_ = out.Encode(report{Error: err.Error()})
			return nil
		}
	}
	_ = out.Encode(hello)
	g.serve()
	g.killAll()
	g.cgroup.remove()
	last := report{Ended: true, Code: code(g.status)}
	if g.keeper != nil {
		g.keeper.finish(last)
	} else {
		_ = out.Encode(last)
	}
	return nil
}

// outlive makes the command outlive the engine: from now on orders come from the engines
// that attach.
func (g *guard) outlive(hello report) error {
	k, first := g.keeper, g.orders
	if err := k.describe(g.command, hello.ID); err != nil {
		k.remove()
		return err
	}
	go func() {
		defer close(k.orphaned)
		for range first { // the first engine sends its orders over the socket, too
		}
	}()
	g.orders = k.orders
	go k.serve(hello)
	return nil
}

// catchSignals keeps the signals that terminate engines from terminating the
// guard. They are caught, not ignored, because the command would inherit ignored
// signals.
func (g *guard) catchSignals() {
	ossignal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2)
}

// readOrders returns the orders as they arrive. The channel is closed at the end of
// the lifeline.
func readOrders(d *json.Decoder) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		for {
			var o order
			if d.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// start starts the command, in a cgroup of its own if allowed and possible.
func (g *guard) start(s start) (err error) {
	outputs := []uintptr{0, 1, 2}
	if s.Adopt != nil {
		if g.keeper, err = newKeeper(*s.Adopt); err != nil {
			g.keeper.remove()
			return err
		}
		outputs = []uintptr{0, g.keeper.command[0].Fd(), g.keeper.command[1].Fd()}
	}
	if s.Cgroup {
		g.cgroup = newCgroup()
	}
	if g.command, err = spawn(s.Plan, g.cgroup, outputs); err != nil && g.cgroup != "" {
		g.cgroup.remove()
		g.cgroup = ""
		g.command, err = spawn(s.Plan, "", outputs)
	}
	if err != nil && g.keeper != nil {
		g.keeper.remove()
	}
	return err
}

// spawn starts a command with three files as standard input, output and error.
func spawn(p command.Plan, in cgroup, files []uintptr) (pid int, err error) {
	attr := command.Attr(p.Credential)
	entered, err := in.enter(attr)
	if err != nil {
		return 0, err
	}
	defer entered()
	pid, err = syscall.ForkExec(p.Path, p.Words, &syscall.ProcAttr{
		Dir:   p.Dir,
		Env:   p.Env,
		Files: files,
		Sys:   attr,
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", p.Path, err)
	}
	return pid, nil
}

// serve returns when the command has exited or must be killed.
func (g *guard) serve() {
	for !g.ended {
		select {
		case <-g.children:
			g.reap()
		case o, alive := <-g.orders:
			if !alive || o.Signal == kill {
				return
			}
			_ = syscall.Kill(-g.command, syscall.SIGTERM)
		}
	}
}

// maxKillInterval limits the time between two kills of descendants that do not die:
// processes stuck in the kernel, or of another user.
const maxKillInterval = 100 * time.Millisecond

// killAll kills and reaps until no descendant is left. Killing the guard's children
// is enough: when they die their children become the guard's.
func (g *guard) killAll() {
	for pause := time.Millisecond; ; pause = min(2*pause, maxKillInterval) {
		g.killOnce()
		if !g.reap() {
			return
		}
		select {
		case <-g.children:
		case <-time.After(pause):
		}
	}
}

func (g *guard) killOnce() {
	g.cgroup.kill()
	if !g.ended || !isSubreaper {
		command.KillGroup(g.command)
	}
	for _, pid := range children() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// reap waits for each child that has exited, and reports whether others are
// left.
func (g *guard) reap() (others bool) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD
			return false
		case pid == 0:
			return true
		case pid == g.command:
			g.ended, g.status = true, status
		}
	}
}

func code(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
