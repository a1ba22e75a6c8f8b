package command

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// RunPortably is Run for systems on which one thread cannot wait for a process, its output and a context in one call. It uses
// os/exec, with goroutines that copy and a thread that waits. The result is the same.
func (p Plan) RunPortably(ctx context.Context, stdout, stderr io.Writer) (End, error) {
	cmd, done := p.cmd(ctx, stdout, stderr), make(chan struct{})
	var err error // set before done is closed
	go func() {
		defer close(done)
		err = runOnThread(cmd)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(2 * waitDelay):
			return End{Killed: true, Stuck: done}, nil
		}
	}
	switch {
	case cmd.Process == nil && ctx.Err() != nil: // it was not started
		return End{Killed: true}, nil
	case cmd.Process == nil:
		return End{}, err
	case cmd.ProcessState == nil:
		return End{}, statusLost(err)
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus) // an output pipe that a descendant keeps open is not an error
	return End{Status: status, Killed: ctx.Err() != nil && died(status)}, nil
}

// cmd returns the command; its group is killed when ctx is done.
func (p Plan) cmd(ctx context.Context, stdout, stderr io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Path)
	cmd.Args, cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = p.Words, p.Env, p.Dir, stdout, stderr
	if len(p.Stdin) > 0 { // nil is /dev/null
		cmd.Stdin = bytes.NewReader(p.Stdin)
	}
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil { // already reaped: another process group may have its ID
			return err
		}
		Signal(cmd.Process.Pid, syscall.SIGKILL)
		return nil
	}
	cmd.SysProcAttr, cmd.WaitDelay, cmd.Err = Attr(p.Credential), waitDelay, nil // Plan has already looked up the program
	return cmd
}

// runOnThread starts the command and reaps it. It locks its thread until then: the kernel kills the command when the thread that
// started it exits (see Attr), and Go terminates a thread when a goroutine returns that has locked it. Waiting for a process
// occupies a thread anyway.
func runOnThread(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	return reapGroup(cmd)
}
