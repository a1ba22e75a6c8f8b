package command

import (
	"context"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// RunPortably is Run as it is done where a thread cannot wait for a process, its
// output and a context in one call: with os/exec, goroutines that copy, and a
// thread that waits. The outcome is the same.
func (p Plan) RunPortably(ctx context.Context, stdout, stderr io.Writer) (End, error) {
	if ctx.Err() != nil {
		return End{Killed: true}, nil
	}
	c := &child{cmd: p.cmd(stdout, stderr), done: make(chan struct{})}
	go c.live()
	select {
	case <-c.done:
		return End{Status: c.status()}, c.err
	case <-ctx.Done():
	}
	killed := c.kill()
	timer := time.NewTimer(2 * Linger)
	defer timer.Stop()
	select {
	case <-c.done:
		return End{Status: c.status(), Killed: killed}, c.err
	case <-timer.C:
		return End{Killed: true, Undead: c.done}, nil
	}
}

func (p Plan) cmd(stdout, stderr io.Writer) *exec.Cmd {
	return &exec.Cmd{
		Path:        p.Path,
		Args:        p.Words,
		Env:         p.Env,
		Dir:         p.Dir,
		Stdout:      stdout,
		Stderr:      stderr,
		SysProcAttr: Attr(p.Credential),
		WaitDelay:   Linger,
	}
}

// child is one command from its start to its end.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd was reaped, or could not be started
	err  error         // why it could not be started or has no status; to be read after done

	mu    sync.Mutex
	state childState
	doom  bool // it must die as soon as it runs
}

type childState uint8

const (
	starting childState = iota
	running
	ended // the group's number may be another's
)

// live starts the command and reaps it.
//
// The kernel kills the command when the thread that started it ends
// (PR_SET_PDEATHSIG). That is meant for the end of the whole engine, but Go ends
// a thread alone, too, when a goroutine that has locked it returns. So this
// goroutine keeps the thread for itself until the command is dead. It costs
// nothing: to wait for a process occupies a thread anyway.
func (c *child) live() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	if c.err = c.cmd.Start(); c.err != nil {
		return
	}
	c.begin()
	c.err = c.reap()
}

func (c *child) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = running
	if c.doom {
		KillGroup(c.cmd.Process.Pid)
	}
}

// end kills what is left of the group.
func (c *child) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = ended
	KillGroup(c.cmd.Process.Pid)
}

// kill kills the group now, or once it runs. It reports whether the command had
// not ended by itself before.
func (c *child) kill() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doom = true
	if c.state == running {
		KillGroup(c.cmd.Process.Pid)
	}
	return c.state != ended
}

// status may be called after done only.
func (c *child) status() syscall.WaitStatus {
	if c.cmd.ProcessState == nil {
		return 0
	}
	status, _ := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status
}

// lost returns why there is no status, or nil when there is one. That a
// descendant holds a pipe open is no error of ours.
func (c *child) lost(err error) error {
	if c.cmd.ProcessState != nil {
		return nil
	}
	return lost(err)
}
