package command

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sonde-probe/sonde/internal/shortage"
)

// run has a guard start the command, and waits for its exit, its output and ctx in one poll(2) on the caller's thread. It calls
// started when the command runs or has failed to start, and possibly again.
//
// A command that sleeps costs the engine 28 KB, including thread and stack (RunPortably: 41 KB, also with a thread), and the system
// at least another 150 KB.
func (p Plan) run(ctx context.Context, stdout, stderr io.Writer, started func(error)) (end End, err error) {
	defer func() { started(err) }()
	works, err := pidfdsWork()
	switch {
	case err != nil:
		return End{}, err
	case !works:
		return p.RunPortably(ctx, stdout, stderr)
	}
	runtime.LockOSThread() // the delay of this thread is measured
	defer runtime.UnlockOSThread()
	cancel, err := newCancelEvent(ctx)
	if err != nil {
		return End{}, err
	}
	defer cancel.close()
	var delays delayReader
	before := delays.threadDelay()
	w, err := p.start(ctx, stdout, stderr)
	if err != nil {
		return End{}, err
	}
	defer w.close()
	w.started = started
	end, err = w.wait(cancel)
	var failed syscall.Errno
	if errors.As(err, &failed) && w.hasFailed {
		err = &os.PathError{Op: "fork/exec", Path: p.Path, Err: failed}
	}
	if w.isFlooded() {
		end.Lost, end.Unmeasured = 0, nil
	} else if ctx.Err() != nil {
		end.Lost += delays.threadDelay() - before
		end.Unmeasured = cmp.Or(end.Unmeasured, delays.short)
	}
	end.Lost = max(0, end.Lost)
	return end, err
}

// pidfdsWork reports whether the kernel has pidfds, which are new in Linux 5.3, and whether this process may use them, which some
// sandboxes forbid. An error is a shortage.
func pidfdsWork() (bool, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if shortage.Is(err) {
		return false, os.NewSyscallError("pidfd_open", err)
	}
	closeFD(fd)
	return err == nil, nil
}

// start has a guard start the command, and returns the waiter for it. After an error, no descriptor is left open. A program on a
// disk that hangs blocks its guard; other commands then use another guard.
func (p Plan) start(ctx context.Context, stdout, stderr io.Writer) (_ *waiter, err error) {
	pipes, err := openPipes(p.Stdin, stdout == stderr)
	if err != nil {
		return nil, err
	}
	defer pipes.closeCommandEnds()
	reports, theirs, err := pipe()
	if err != nil {
		pipes.close()
		return nil, err
	}
	defer closeFD(theirs)
	for range 2 { // retry: a guard may have been killed since it was last used
		var g *guard
		if g, err = acquireGuard(p.MayDetach); err != nil {
			break
		}
		var run int64
		orderedAt := monotonic()
		if run, err = g.start(ctx, p, theirs, pipes.command); err == nil {
			return newWaiter(g, run, orderedAt, reports, pipes.engine, stdout, stderr), nil
		}
		g.release()
		if err != errGuardEnded {
			break
		}
	}
	closeFD(reports)
	pipes.close()
	return nil, err
}
