package command

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Indexes of the descriptors of a waiter.
const (
	reportFD = iota // the guard's reports
	cancelFD
	stdoutFD
	stderrFD
	numFDs
)

// waiter waits for a command. It is used by a single goroutine.
type waiter struct {
	guard     *guard
	run       int64
	started   func(error)
	polled    [numFDs]unix.PollFd // -1: not polled
	outputs   [numFDs]io.Writer
	ended     bool // there are no more reports
	cancelled bool // the context is done
	killing   bool // the guard is killing it by order
	end       End
	pollErr   error // of poll(2)
	failure   error // why it has not run, or why its status is unknown
	hasFailed bool  // it could not be started
	buf       [1 << 10]byte

	orderedAt time.Duration // when start was ordered, by the monotonic clock

	copied int  // bytes of the outputs
	paused bool // the outputs were not polled the last time
}

// A command that has written more than floodSize, several times the capacity of its pipes, is considered to be flooding
// them: it waits for the reads of this process, which are throttled to some 60 MB/s for each pipe, and is not starved
// of CPU.
const (
	floodSize  = 256 << 10
	floodPause = time.Millisecond
)

func (w *waiter) isFlooded() bool { return w.copied > floodSize }

// floodBuffers are buffers of the size of a pipe, for outputs that flood.
var floodBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

func newWaiter(g *guard, run int64, orderedAt time.Duration, reports int, read [2]int, stdout, stderr io.Writer) *waiter {
	w := &waiter{guard: g, run: run, orderedAt: orderedAt, outputs: [...]io.Writer{stdoutFD: stdout, stderrFD: stderr}}
	for i, fd := range [...]int{reportFD: reports, cancelFD: -1, stdoutFD: read[0], stderrFD: read[1]} {
		w.polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	return w
}

// wait waits until the command has exited, or has the guard kill it when the event occurs. An error means that the command was not
// started, or that it is not known whether it was.
func (w *waiter) wait(cancel *cancelEvent) (End, error) {
	w.polled[cancelFD].Fd = int32(cancel.fd)
	w.pollUntil(time.Time{}, func() bool { return w.ended || w.cancelled })
	deadline, pollErr := time.Now().Add(2*waitDelay), w.pollErr
	if !w.ended {
		w.kill(deadline)
	}
	w.drain(deadline)
	return w.end, cmp.Or(w.failure, pollErr)
}

// kill has the guard kill the command, and waits until it has exited.
func (w *waiter) kill(deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	err := w.guard.send(ctx, header{kind: orderKill, value: w.run}, nil)
	if w.pollUntil(deadline, func() bool { return w.ended }) {
		w.end.Killed = died(w.end.Status) && !w.end.TooMany
		return
	}
	w.end.Killed = true
	if !w.killing && w.pollErr == nil { // the guard was stopped, or waits for a disk
		w.guard.isSilent()
		w.failure = cmp.Or(err, errSilent)
	}
	w.end.Stuck = w.awaitLater(err != nil)
}

// drain reads the rest of the output, until the deadline and for at most waitDelay.
func (w *waiter) drain(deadline time.Time) {
	if t := time.Now().Add(waitDelay); t.Before(deadline) {
		deadline = t
	}
	w.pollUntil(deadline, func() bool { return w.polled[stdoutFD].Fd < 0 && w.polled[stderrFD].Fd < 0 })
}

// awaitLater waits in the background for a command that was killed but has not exited yet; with mustKill, it first orders the guard
// to kill it. The channel is closed when the command has exited.
func (w *waiter) awaitLater(mustKill bool) <-chan struct{} {
	done, reports := make(chan struct{}), int(w.polled[reportFD].Fd)
	w.polled[reportFD].Fd = -1
	guard, run := w.guard, w.run
	w.guard = nil
	go func() {
		defer close(done)
		defer guard.release()
		defer closeFD(reports)
		if mustKill {
			_ = guard.send(context.Background(), header{kind: orderKill, value: run}, nil) // an error: the guard has exited
		}
		for {
			polled := []unix.PollFd{{Fd: int32(reports), Events: unix.POLLIN}}
			if _, err := unix.Poll(polled, -1); err == unix.EINTR {
				continue
			} else if err != nil {
				return
			}
			r, err := readReport(reports)
			if err == nil {
				guard.hasAnswered()
			}
			if err != nil || r.kind == reportExited || r.kind == reportTooMany || r.kind == reportFailed {
				return
			}
		}
	}()
	return done
}

// pollUntil handles events until the condition holds, and reports whether it held before the deadline. The zero time means no
// deadline.
func (w *waiter) pollUntil(deadline time.Time, holds func() bool) bool {
	for !holds() {
		if !w.poll(deadline) {
			return false
		}
	}
	return true
}

// poll waits for events and handles them. It returns false after the deadline, or if poll(2) fails.
func (w *waiter) poll(deadline time.Time) bool {
	var timeout *unix.Timespec
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		t := unix.NsecToTimespec(int64(left))
		timeout = &t
	}
	polled := w.polled[:]
	if w.paused = w.isFlooded() && !w.paused; w.paused {
		polled = w.polled[:stdoutFD]
		w.polled[stdoutFD].Revents, w.polled[stderrFD].Revents = 0, 0
		t := unix.NsecToTimespec(int64(floodPause))
		timeout = &t
	}
	_, err := unix.Ppoll(polled, timeout, nil)
	if err != nil {
		if !errors.Is(err, unix.EINTR) {
			w.pollErr = os.NewSyscallError("ppoll", err)
		}
		return w.pollErr == nil
	}
	w.handleEvents()
	return true
}

// handleEvents handles the events that poll(2) returned.
func (w *waiter) handleEvents() {
	if w.polled[reportFD].Revents != 0 {
		w.receive()
	}
	if w.polled[cancelFD].Revents != 0 {
		w.cancelled = true
		w.polled[cancelFD].Fd = -1
	}
	for i := stdoutFD; i <= stderrFD; i++ {
		if w.polled[i].Revents != 0 {
			w.copy(i)
		}
	}
}

// receive handles a report. After the last report, it closes the descriptor.
func (w *waiter) receive() {
	r, err := readReport(int(w.polled[reportFD].Fd))
	if err == nil {
		w.guard.hasAnswered()
	}
	w.ended = true
	w.end.Lost += r.lost
	switch {
	case err != nil:
		w.failure = err
	case r.kind == reportStarted:
		w.ended = false
		w.end.Lost += max(0, time.Duration(r.value)-w.orderedAt)
		w.started(nil)
	case r.kind == reportFailed:
		w.failure, w.hasFailed = syscall.Errno(r.value), true
	case r.kind == reportKilled:
		w.ended, w.killing = false, true
	case r.kind == reportUnmeasured:
		w.ended, w.killing, w.end.Unmeasured = false, true, syscall.Errno(r.value)
	default:
		w.end.Status, w.end.TooMany = syscall.WaitStatus(r.value), r.kind == reportTooMany
	}
	if w.ended {
		w.closePolled(reportFD)
	}
}

// copy copies a part of an output, or closes the descriptor at its end or after an error.
func (w *waiter) copy(i int) {
	buf := w.buf[:]
	if w.isFlooded() {
		large := floodBuffers.Get().(*[64 << 10]byte)
		defer floodBuffers.Put(large)
		buf = large[:]
	}
	n, err := unix.Read(int(w.polled[i].Fd), buf)
	switch {
	case n > 0:
		w.copied += n
		_, _ = w.outputs[i].Write(buf[:n])
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
		w.closePolled(i)
	}
}

// closePolled closes a descriptor and stops polling it.
func (w *waiter) closePolled(i int) {
	closeFD(int(w.polled[i].Fd))
	w.polled[i].Fd = -1
}

// close closes all open descriptors, except that of the event, and releases the guard.
func (w *waiter) close() {
	w.closePolled(reportFD)
	w.closePolled(stdoutFD)
	w.closePolled(stderrFD)
	if w.guard != nil {
		w.guard.release()
	}
}

// reap reaps a child that has exited, and returns its status. If usage is not nil, reap stores the resource usage of the child and
// of its descendants that were reaped.
func reap(pid int, usage *syscall.Rusage) (status syscall.WaitStatus, err error) {
	for {
		_, err = syscall.Wait4(pid, &status, 0, usage)
		if err == nil {
			return status, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return 0, statusLost(err)
		}
	}
}
