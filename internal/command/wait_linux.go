package command

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptors of a waiter.
const (
	exitFD = iota // a pidfd
	cancelFD
	stdoutFD
	stderrFD
	numFDs
)

// waiter waits for a running command. Only the thread that started the command uses it,
// so it needs no lock.
type waiter struct {
	pid       int
	polled    [numFDs]unix.PollFd // -1: not polled
	outputs   [numFDs]io.Writer
	exited    bool // the command can be reaped
	cancelled bool // the context is done
	wholeTree bool // see Plan
	delays    delayReader
	delay     time.Duration // how long the command had waited for a processor when the context was done
	err       error         // why poll(2) has failed
	buf       [1 << 10]byte
}

func newWaiter(pid, pidfd int, read [2]int, stdout, stderr io.Writer) *waiter {
	w := &waiter{pid: pid, outputs: [...]io.Writer{stdoutFD: stdout, stderrFD: stderr}}
	for i, fd := range [...]int{exitFD: pidfd, cancelFD: -1, stdoutFD: read[0], stderrFD: read[1]} {
		w.polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	return w
}

// wait waits until the command has exited, or kills it when the event occurs.
func (w *waiter) wait(cancel *cancelEvent) (End, error) {
	w.polled[cancelFD].Fd = int32(cancel.fd)
	w.pollUntil(time.Time{}, func() bool { return w.exited || w.cancelled })
	if w.err != nil {
		return End{}, abandon(w.pid, os.NewSyscallError("ppoll", w.err))
	}
	if w.cancelled {
		w.delay = w.delays.treeDelay(w.pid)
	}
	killed, deadline := !w.exited, time.Now().Add(2*waitDelay)
	switch {
	case killed && w.wholeTree:
		killTree(w.pid)
	case killed:
		KillGroup(w.pid)
	}
	if !w.pollUntil(deadline, func() bool { return w.exited }) {
		return End{Killed: true, Stuck: w.reapLater()}, nil
	}
	KillGroup(w.pid)
	status, err := reap(w.pid)
	w.drain(deadline)
	return End{Status: status, Killed: killed && died(status)}, err
}

// drain reads the rest of the output, until the deadline and for waitDelay at most.
func (w *waiter) drain(deadline time.Time) {
	if t := time.Now().Add(waitDelay); t.Before(deadline) {
		deadline = t
	}
	w.pollUntil(deadline, func() bool { return w.polled[stdoutFD].Fd < 0 && w.polled[stderrFD].Fd < 0 })
}

// reapLater reaps a command that was killed and has not exited yet. The channel is closed
// when it has.
func (w *waiter) reapLater() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		awaitExit(w.pid)
		KillGroup(w.pid)
		_, _ = reap(w.pid)
	}()
	return done
}

// pollUntil handles events until the condition holds, and reports whether it held before
// the deadline. The zero time is no deadline.
func (w *waiter) pollUntil(deadline time.Time, holds func() bool) bool {
	for !holds() {
		if !w.poll(deadline) {
			return false
		}
	}
	return true
}

// poll waits for events and handles them. It returns false after the deadline, or when
// poll(2) fails.
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
	_, err := unix.Ppoll(w.polled[:], timeout, nil)
	if err != nil {
		if !errors.Is(err, unix.EINTR) {
			w.err = err
		}
		return w.err == nil
	}
	w.handleEvents()
	return true
}

// handleEvents handles the events that poll(2) returned.
func (w *waiter) handleEvents() {
	if w.polled[exitFD].Revents != 0 {
		w.exited = true
		w.closePolled(exitFD)
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

// copy copies a part of an output, or closes it at its end or at an error.
func (w *waiter) copy(i int) {
	n, err := unix.Read(int(w.polled[i].Fd), w.buf[:])
	switch {
	case n > 0:
		_, _ = w.outputs[i].Write(w.buf[:n])
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
		w.closePolled(i)
	}
}

// closePolled closes a descriptor and stops polling it.
func (w *waiter) closePolled(i int) {
	closeFD(int(w.polled[i].Fd))
	w.polled[i].Fd = -1
}

// close closes all descriptors that are open, except that of the event.
func (w *waiter) close() {
	w.closePolled(exitFD)
	w.closePolled(stdoutFD)
	w.closePolled(stderrFD)
}

// reap reaps a child that has exited, and returns its status.
func reap(pid int) (status syscall.WaitStatus, err error) {
	for {
		_, err = syscall.Wait4(pid, &status, 0, nil)
		if err == nil {
			return status, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return 0, statusLost(err)
		}
	}
}
