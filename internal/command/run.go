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

// Linger bounds what Run waits for beyond the command's end or ctx's: for the
// death of a command that was killed, and for the output pipes when a
// daemonised descendant holds them open.
const Linger = 100 * time.Millisecond

// End is how a command ended.
type End struct {
	Status syscall.WaitStatus
	Killed bool // ctx was done first and the group was killed; Status may be missing

	// Undead is set when the command was killed and has not died: it is another
	// user's, or stuck in the kernel. It is closed when the command is dead.
	Undead <-chan struct{}
}

// Run starts the command in a process group of its own, copies its output to
// stdout and stderr, and returns when it has ended or ctx is done, at most
// 2*Linger later. Whatever is left of the group is killed in both cases. What
// has left the group (setsid) lives on, but is not waited for.
//
// An error says that the command could not be started. The writers must bear
// writes after Run has returned, and writes at once when they are the same.
func (p Plan) Run(ctx context.Context, stdout, stderr io.Writer) (End, error) {
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
	err  error         // why it could not be started; to be read after done

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
	c.reap()
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

// KillGroup sends SIGKILL to every process of a group. The caller knows that
// the group's leader is not reaped yet: its number is still its own.
func KillGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
