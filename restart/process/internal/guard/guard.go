// Package guard is the process between an engine and a command that it runs: see package process.
//
// The guard starts in the initialization of this package. This package imports little, and not net, so that most
// packages of the program, which take most of the memory, would be initialized later and never are in a guard.
//
// Files: guard.go starts the command, kill.go asks it to exit and kills it, and link.go exchanges messages with the
// engine. wire.go defines these messages; adoption_linux.go lets later engines attach; launcher_linux.go starts a
// command with limits; cgroup_linux.go and tree_linux.go find descendants, and end those whose guard was killed.
package guard

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/quota"
	"github.com/sonde-probe/sonde/internal/shortage"
)

// Name is the argv[0] of a guard.
const Name = "sonde-guard"

func init() {
	if len(os.Args) == 0 || os.Args[0] != Name {
		return
	}
	// The kernel kills the command when the thread that started it ends
	// (PR_SET_PDEATHSIG). This thread lives as long as the guard.
	runtime.LockOSThread()
	command.CloseInherited(stderrEnd)
	quota.MakeThreads(idleThreads)
	for fd := socketFile; fd <= stderrEnd; fd++ {
		syscall.CloseOnExec(fd) // the command must not inherit them
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// idleThreads is the number of threads that a guard creates before it starts the command: the maximum number of
// concurrently blocked system calls. If a guard needed another thread later and the system refused it, the Go runtime
// would exit, and the command would end with it.
const idleThreads = 5

// guard runs one command. Only one goroutine starts, kills and reaps processes, so that the ID of a child that has not
// been reaped never belongs to another process.
type guard struct {
	children chan os.Signal
	adoption *adoption // nil unless the command outlives the engine
	refusal  string    // why the command does not outlive the engine, although Start.Adopt is set
	faulty   bool      // the command itself cannot be started; for any other error this machine is at fault
	tree     Tree      // the command and its descendants
	killAt   time.Time // the end of the grace period; zero while the command was not asked to exit
	killed   bool      // it had not exited by then
	ended    bool
	status   syscall.WaitStatus // set once ended
}

// run runs the command of the first order, and returns when the command and all its descendants have ended. It returns
// an error if there is no valid first order.
func run() error {
	g := &guard{children: make(chan os.Signal, 1)}
	signal.Notify(g.children, syscall.SIGCHLD)
	g.catchSignals()
	if err := becomeSubreaper(); err != nil {
		return err
	}
	_ = syscall.SetNonblock(socketFile, true) // otherwise each read takes a thread
	e := newEngine(os.NewFile(socketFile, "engine"))
	var first Order
	if err := e.orders.Decode(&first); err != nil {
		return fmt.Errorf("read the order to start: %w", err)
	}
	if first.Start == nil {
		return errors.New("the first order is not the one to start")
	}
	if socket := first.Start.Socket; socket != "" {
		defer os.Remove(socket)
	}
	hello, err := g.start(*first.Start)
	if err != nil {
		e.send(Report{Error: err.Error(), Shortage: !g.faulty})
		return nil
	}
	e.send(hello)
	orders, last, reported := make(chan Order), make(chan Report, 1), make(chan struct{})
	l := link{orders: orders, last: last, adoption: g.adoption, hello: hello}
	go func() {
		defer close(reported)
		l.attend(e)
	}()
	g.serve(orders)
	g.killAll()
	g.tree.Cgroup.remove()
	last <- Report{Ended: true, Code: code(g.status), Signal: killer(g.status), Killed: g.killed}
	<-reported
	return nil
}

// catchSignals keeps the signals that terminate engines from terminating the guard. They are caught, not ignored,
// because the command would inherit ignored signals.
func (g *guard) catchSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2)
}

// start starts the command, in a cgroup of its own if allowed and possible. After an error it leaves nothing behind.
func (g *guard) start(s Start) (hello Report, err error) {
	defer func() {
		if err == nil {
			return
		}
		if g.tree.Pid != 0 {
			g.killAll()
		}
		g.tree.Cgroup.remove()
		g.adoption.remove()
	}()
	if s.Adopt != nil {
		g.adoption, err = openAdoption(*s.Adopt)
		if err := g.unlessRefused(err); err != nil {
			return Report{}, err
		}
	}
	if s.Cgroup {
		g.tree.Cgroup = newCgroup()
	}
	g.tree.identifyGuard()
	err = g.adoption.describe("", g.tree) // the program may be on a file system that does not respond
	if err := g.unlessRefused(err); err != nil {
		return Report{}, err
	}
	if s.Umask != nil {
		defer syscall.Umask(syscall.Umask(*s.Umask)) // the guard creates its own files before and after
	}
	if g.tree.Pid, err = spawn(s, g.tree.Cgroup); g.tree.Cgroup != "" && mayBlameCgroup(err) {
		g.tree.Cgroup.remove()
		g.tree.Cgroup = ""
		g.tree.Pid, err = spawn(s, "")
	}
	if err != nil {
		g.faulty = !shortage.IsFork(err)
		return Report{}, err
	}
	g.tree.identifyCommand()
	id := strconv.Itoa(g.tree.Pid) + "-" + s.Suffix
	err = g.unlessRefused(g.adoption.describe(id, g.tree))
	return Report{ID: id, Tree: g.tree, NotAdopted: g.refusal}, err
}

// unlessRefused returns err, unless err means that the directory accepts no files now. In that case it returns nil, and
// the command ends with the engine, as if Start.Adopt were not set.
func (g *guard) unlessRefused(err error) error {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.EACCES, syscall.EPERM, syscall.ENOENT} {
		if errors.Is(err, errno) {
			g.adoption.abandon()
			g.adoption, g.refusal = nil, err.Error()
			return nil
		}
	}
	return err
}

// launchError is an error of a launcher that was started.
type launchError struct {
	text   string
	number syscall.Errno // 0 for none
}

func (e launchError) Error() string { return e.text }

func (e launchError) Unwrap() error {
	if e.number == 0 {
		return nil
	}
	return e.number
}

// mayBlameCgroup reports whether a failed start may be retried without the cgroup: not if a process was started in the
// cgroup.
func mayBlameCgroup(err error) bool {
	_, started := errors.AsType[launchError](err)
	return err != nil && !started
}

// spawn starts a command.
func spawn(s Start, in Cgroup) (pid int, err error) {
	p := s.Plan
	attr := command.Attr(p.Credential)
	entered, err := in.enter(attr)
	if err != nil {
		return 0, err
	}
	defer entered()
	if s.Nice != nil || len(s.Rlimits) > 0 {
		return launch(s, attr)
	}
	pid, err = syscall.ForkExec(p.Path, p.Words, &syscall.ProcAttr{Dir: p.Dir, Env: p.Env, Files: []uintptr{0, stdoutEnd, stderrEnd}, Sys: attr})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", p.Path, err)
	}
	return pid, nil
}

// serve carries out orders, and returns when the command has exited or must be killed. Closed orders mean that the
// command must not outlive the engine.
func (g *guard) serve(orders <-chan Order) {
	var graceOver <-chan time.Time
	for !g.ended {
		select {
		case <-g.children:
			g.reap()
		case <-graceOver:
			g.killed = true
			return
		case o, open := <-orders:
			if !open || o.Signal == Kill {
				return
			}
			graceOver = g.terminate(o)
		}
	}
}

// reap reaps all children that have exited, and reports whether others are left.
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
		case pid == g.tree.Pid:
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

// killer returns the signal that killed a process, or 0.
func killer(s syscall.WaitStatus) syscall.Signal {
	if !s.Signaled() {
		return 0
	}
	return s.Signal()
}
