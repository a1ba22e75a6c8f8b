package command

import (
	"context"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/shortage"
)

// run starts the command and waits for its exit, its output and ctx in one poll(2) on
// the caller's thread. It calls started when the command runs or has failed to start, and
// may call it again. It locks the thread until the command has exited or was killed,
// because the kernel kills the command when the thread ends that started it (see Attr).
//
// A command that sleeps costs the engine 28 KB, with thread and stack (RunPortably: 41
// KB, also with a thread), and the system at least another 150 KB.
func (p Plan) run(ctx context.Context, stdout, stderr io.Writer, started func(error)) (end End, err error) {
	defer func() { started(err) }()
	works, err := pidfdsWork()
	switch {
	case err != nil:
		return End{}, err
	case !works:
		return p.RunPortably(ctx, stdout, stderr)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cancel, err := newCancelEvent(ctx)
	if err != nil {
		return End{}, err
	}
	defer cancel.close()
	var delays delayReader
	before := delays.threadDelay()
	w, err := p.start(stdout, stderr)
	if err != nil {
		return End{}, err
	}
	defer w.close()
	w.delays, w.wholeTree = delays, p.WholeTree
	started(nil)
	end, err = w.wait(cancel)
	if ctx.Err() != nil {
		end.Lost = w.delay + w.delays.threadDelay() - before
		end.Unmeasured = w.delays.short
	}
	return end, err
}

// pidfdsWork reports whether the kernel has pidfds, which are new in Linux 5.3, and this
// process may use them, which some sandboxes forbid. An error is a shortage.
func pidfdsWork() (bool, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if shortage.Is(err) {
		return false, os.NewSyscallError("pidfd_open", err)
	}
	closeFD(fd)
	return err == nil, nil
}

// start starts the command. After an error no descriptor is left open. A program on a
// disk that hangs blocks start beyond any deadline, and other goroutines too:
// syscall.StartProcess keeps its P until the new program runs.
func (p Plan) start(stdout, stderr io.Writer) (*waiter, error) {
	pipes, err := openPipes(p.Stdin, stdout == stderr)
	if err != nil {
		return nil, err
	}
	defer pipes.closeCommandEnds()
	pid, _, err := syscall.StartProcess(p.Path, p.Words, &syscall.ProcAttr{
		Dir:   p.Dir,
		Env:   p.Env,
		Files: []uintptr{uintptr(pipes.command[0]), uintptr(pipes.command[1]), uintptr(pipes.command[2])},
		Sys:   Attr(p.Credential),
	})
	if err != nil {
		pipes.close()
		return nil, &os.PathError{Op: "fork/exec", Path: p.Path, Err: err}
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		pipes.close()
		return nil, abandon(pid, os.NewSyscallError("pidfd_open", err))
	}
	return newWaiter(pid, pidfd, pipes.engine, stdout, stderr), nil
}

// abandon kills and reaps a command that cannot be waited for, and returns the reason.
func abandon(pid int, why error) error {
	KillGroup(pid)
	if _, err := reap(pid); err != nil {
		return err
	}
	return why
}
