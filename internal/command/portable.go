package command

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// RunPortably is Run for systems on which a thread cannot wait for a process, its output
// and a context in one call. It uses os/exec, goroutines that copy, and a thread that
// waits. The result is the same.
func (p Plan) RunPortably(ctx context.Context, stdout, stderr io.Writer) (End, error) {
	if ctx.Err() != nil {
		return End{Killed: true}, nil
	}
	c := &child{cmd: p.cmd(stdout, stderr), done: make(chan struct{})}
	go c.run()
	select {
	case <-c.done:
		return End{Status: c.status()}, c.err
	case <-ctx.Done():
	}
	if !c.kill() { // it has exited: Wait returns after waitDelay at the latest
		<-c.done
		return End{Status: c.status()}, c.err
	}
	timer := time.NewTimer(2 * waitDelay)
	defer timer.Stop()
	select {
	case <-c.done:
		return End{Status: c.status(), Killed: died(c.status())}, c.err
	case <-timer.C:
		return End{Killed: true, Stuck: c.done}, nil
	}
}

func (p Plan) cmd(stdout, stderr io.Writer) *exec.Cmd {
	var stdin io.Reader // nil is /dev/null
	if len(p.Stdin) > 0 {
		stdin = bytes.NewReader(p.Stdin)
	}
	return &exec.Cmd{
		Path:        p.Path,
		Args:        p.Words,
		Env:         p.Env,
		Dir:         p.Dir,
		Stdin:       stdin,
		Stdout:      stdout,
		Stderr:      stderr,
		SysProcAttr: Attr(p.Credential),
		WaitDelay:   waitDelay,
	}
}

// child is a command that RunPortably runs.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd is reaped, or could not be started
	err  error         // why it could not be started or has no status; set before done is closed

	mu     sync.Mutex
	state  childState
	doomed bool // kill it as soon as it runs
}

type childState uint8

const (
	starting childState = iota
	running
	exited // its ID may belong to another process
)

// run starts the command and reaps it. It locks its thread until then, because the
// kernel kills the command when the thread ends that started it (see Attr), and Go ends
// a thread when a goroutine that has locked it returns. Waiting for a process occupies a
// thread anyway.
func (c *child) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	if c.err = c.cmd.Start(); c.err != nil {
		return
	}
	c.started()
	c.err = c.reap()
}

func (c *child) started() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = running
	if c.doomed {
		KillGroup(c.cmd.Process.Pid)
	}
}

// exited kills the rest of the group.
func (c *child) exited() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = exited
	KillGroup(c.cmd.Process.Pid)
}

// kill kills the group now, or as soon as it runs. It returns false if the command had
// exited before.
func (c *child) kill() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doomed = true
	if c.state == running {
		KillGroup(c.cmd.Process.Pid)
	}
	return c.state != exited
}

// status may be called only after done is closed.
func (c *child) status() syscall.WaitStatus {
	if c.cmd.ProcessState == nil {
		return 0
	}
	status, _ := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status
}

// statusError returns why there is no status, or nil if there is one: an output pipe
// that a descendant keeps open is not an error.
func (c *child) statusError(err error) error {
	if c.cmd.ProcessState != nil {
		return nil
	}
	return statusLost(err)
}
