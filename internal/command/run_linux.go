package command

import (
	"context"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// run starts the command and waits for its end, its output and ctx in one poll(2)
// of the caller's own thread.
//
// The kernel kills the command when the thread that started it ends
// (PR_SET_PDEATHSIG). That is meant for the end of the whole engine, but Go ends
// a thread alone, too, when a goroutine that has locked it returns. So the caller
// keeps its thread for itself until the command is dead or doomed. A command that
// sleeps costs the engine 28 KB so, thread and stack and all (41 KB the portable
// way, which needs the thread as well), and the system another 150 KB at least.
func (p Plan) run(ctx context.Context, stdout, stderr io.Writer) (End, error) {
	if !pidfdsWork() {
		return p.RunPortably(ctx, stdout, stderr)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, err := newBell(ctx)
	if err != nil {
		return End{}, err
	}
	defer b.close()
	w, err := p.start(stdout, stderr)
	if err != nil {
		return End{}, err
	}
	defer w.close()
	return w.wait(b)
}

// pidfdsWork reports whether the kernel has pidfds and lets us use them: Linux 5.3
// has, some sandboxes do not.
func pidfdsWork() bool {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	shut(fd)
	return err == nil
}

// start starts the command. Nothing is left open after an error. A program on a
// disk that does not answer holds it up beyond any deadline, and all of Go with
// it: syscall.StartProcess keeps its processor until the new program runs.
func (p Plan) start(stdout, stderr io.Writer) (*watch, error) {
	pipes, err := openPipes(stdout == stderr)
	if err != nil {
		return nil, err
	}
	defer pipes.closeTheirs()
	pid, _, err := syscall.StartProcess(p.Path, p.Words, &syscall.ProcAttr{
		Dir:   p.Dir,
		Env:   p.Env,
		Files: []uintptr{uintptr(pipes.theirs[0]), uintptr(pipes.theirs[1]), uintptr(pipes.theirs[2])},
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
	return newWatch(pid, pidfd, pipes.ours, stdout, stderr), nil
}

// abandon kills and reaps a command that cannot be waited for, and returns why.
func abandon(pid int, why error) error {
	KillGroup(pid)
	if _, err := reap(pid); err != nil {
		return err
	}
	return why
}
