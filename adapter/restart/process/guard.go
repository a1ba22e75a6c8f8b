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

// guardName is a guard's argv[0], in the process list and for Guard.
const guardName = "sonde-guard"

// hooked says that main has called Guard. It is a fact about the whole program,
// like its arguments.
var hooked atomic.Bool

// Guard must be the first call in the main function of a program that uses this
// package, and in its TestMain. It returns at once, except in a guard: then it
// watches one life of a command, and ends the program instead of returning.
func Guard() {
	hooked.Store(true)
	if len(os.Args) == 0 || os.Args[0] != guardName {
		return
	}
	// The kernel kills the command when the thread that started it ends
	// (PR_SET_PDEATHSIG). This one is kept until the guard itself ends.
	runtime.LockOSThread()
	keepFiles()
	err := watch(os.NewFile(ordersFile, "orders"), os.NewFile(reportsFile, "reports"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", guardName, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keepFiles keeps the guard's descriptors from the command, and those too that
// the engine's own parent has left open by mistake.
func keepFiles() {
	syscall.CloseOnExec(ordersFile)
	syscall.CloseOnExec(reportsFile)
	closeRestOnExec()
}

// guard watches one life. Only one goroutine starts, kills and reaps, so that
// the number of a child that is not reaped yet is never another's.
type guard struct {
	orders   <-chan order // closed when the engine is no more
	children chan os.Signal

	command int // the command's process ID
	cgroup  cgroup
	ended   bool
	status  syscall.WaitStatus // once ended
}

// watch does all that a guard does. An error says that the engine's first order
// is not to be had.
func watch(orders io.Reader, reports io.Writer) error {
	g := guard{children: make(chan os.Signal, 1)}
	ossignal.Notify(g.children, syscall.SIGCHLD)
	g.outlive()
	if err := adopt(); err != nil {
		return err
	}
	decoder := json.NewDecoder(orders)
	var first order
	if err := decoder.Decode(&first); err != nil || first.Start == nil {
		return fmt.Errorf("no order to start: %w", err)
	}
	out := json.NewEncoder(reports) // what cannot be told to the engine can be told to nobody
	if err := g.start(*first.Start); err != nil {
		_ = out.Encode(report{Error: err.Error()})
		return nil
	}
	_ = out.Encode(report{Pid: g.command, Cgroup: g.cgroup})
	g.orders = follow(decoder)
	g.serve()
	g.sweep()
	g.cgroup.remove()
	_ = out.Encode(report{Ended: true, Code: code(g.status)})
	return nil
}

// outlive keeps the signals that end engines from ending the guard. They are
// caught and not ignored, because the command would inherit the latter.
func (g *guard) outlive() {
	ossignal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2)
}

// follow returns the orders as they come. The channel is closed when there can
// be no more of them.
func follow(d *json.Decoder) <-chan order {
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

// start runs the command, in a cgroup of its own if it may and can.
func (g *guard) start(s start) (err error) {
	if s.Cgroup {
		g.cgroup = newCgroup()
	}
	if g.cgroup != "" {
		if g.command, err = spawn(s.Plan, g.cgroup); err == nil {
			return nil
		}
		g.cgroup.remove()
		g.cgroup = ""
	}
	g.command, err = spawn(s.Plan, "")
	return err
}

// spawn starts a command with the guard's own standard files.
func spawn(p command.Plan, in cgroup) (pid int, err error) {
	attr := command.Attr(p.Credential)
	leave, err := in.enter(attr)
	if err != nil {
		return 0, err
	}
	defer leave()
	pid, err = syscall.ForkExec(p.Path, p.Words, &syscall.ProcAttr{
		Dir:   p.Dir,
		Env:   p.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   attr,
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", p.Path, err)
	}
	return pid, nil
}

// serve returns when the command has ended or must be killed.
func (g *guard) serve() {
	for !g.ended {
		select {
		case <-g.children:
			g.reap()
		case o, alive := <-g.orders:
			if !alive || o.Signal == byForce {
				return
			}
			_ = syscall.Kill(-g.command, syscall.SIGTERM)
		}
	}
}

// sweepPause bounds the time between two looks at what is left, when what was
// killed does not die: it is stuck in the kernel, or another user's.
const sweepPause = 100 * time.Millisecond

// sweep kills and reaps until nothing is left. Killing the guard's own children
// is enough: theirs become the guard's when they die.
func (g *guard) sweep() {
	for pause := time.Millisecond; ; pause = min(2*pause, sweepPause) {
		g.kill()
		if !g.reap() {
			return
		}
		select {
		case <-g.children:
		case <-time.After(pause):
		}
	}
}

func (g *guard) kill() {
	g.cgroup.kill()
	if !g.ended || !adopts {
		command.KillGroup(g.command)
	}
	for _, pid := range children() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// reap takes the status of every child that has ended. It reports whether there
// are others.
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
