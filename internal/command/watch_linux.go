package command

import (
	"errors"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptors of a watch.
const (
	itsEnd = iota // a pidfd
	theBell
	itsOutput
	itsErrors
	descriptors
)

// watch is a command that runs, as the thread sees it that has started it. Only
// this thread reads, kills and reaps, so that nothing needs a lock.
type watch struct {
	pid     int
	polled  [descriptors]unix.PollFd // what is not waited for is -1
	outputs [descriptors]io.Writer
	ended   bool // it can be reaped
	rung    bool // nobody wants to wait any more
	piece   [1 << 10]byte
}

func newWatch(pid, pidfd int, read [2]int, stdout, stderr io.Writer) *watch {
	w := &watch{pid: pid, outputs: [...]io.Writer{itsOutput: stdout, itsErrors: stderr}}
	for i, fd := range [...]int{itsEnd: pidfd, theBell: -1, itsOutput: read[0], itsErrors: read[1]} {
		w.polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	return w
}

// wait returns how the command has ended, or that it was killed and has not died.
// The bell ends the waiting.
func (w *watch) wait(b *bell) (End, error) {
	w.polled[theBell].Fd = int32(b.fd)
	w.serve(time.Time{}, func() bool { return w.ended || w.rung })
	killed, last := !w.ended, time.Now().Add(2*Linger)
	if killed {
		KillGroup(w.pid)
	}
	if !w.serve(last, func() bool { return w.ended }) {
		return End{Killed: true, Undead: w.leave()}, nil
	}
	KillGroup(w.pid)
	status, err := reap(w.pid)
	w.drain(last)
	return End{Status: status, Killed: killed}, err
}

// drain reads what is left in the pipes, until last and for Linger at most.
func (w *watch) drain(last time.Time) {
	if linger := time.Now().Add(Linger); linger.Before(last) {
		last = linger
	}
	w.serve(last, func() bool { return w.polled[itsOutput].Fd < 0 && w.polled[itsErrors].Fd < 0 })
}

// leave lets go of a command that does not die, and returns what is closed when it
// has died after all.
func (w *watch) leave() <-chan struct{} {
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		awaitExit(w.pid)
		KillGroup(w.pid)
		_, _ = reap(w.pid)
	}()
	return dead
}

// serve copies output and notes what happens until it is over, and reports false
// when that takes beyond last. The zero time is never.
func (w *watch) serve(last time.Time, over func() bool) bool {
	for !over() {
		if !w.poll(last) {
			return false
		}
	}
	return true
}

// poll waits until something happens, and notes it. It reports false when last is
// over, or when the kernel does not let it wait.
func (w *watch) poll(last time.Time) bool {
	var limit *unix.Timespec
	if !last.IsZero() {
		left := time.Until(last)
		if left <= 0 {
			return false
		}
		t := unix.NsecToTimespec(int64(left))
		limit = &t
	}
	_, err := unix.Ppoll(w.polled[:], limit, nil)
	if err != nil {
		return errors.Is(err, unix.EINTR)
	}
	w.note()
	return true
}

// note looks at what poll has found.
func (w *watch) note() {
	if w.polled[itsEnd].Revents != 0 {
		w.ended = true
		w.done(itsEnd)
	}
	if w.polled[theBell].Revents != 0 {
		w.rung = true
		w.polled[theBell].Fd = -1
	}
	for i := itsOutput; i <= itsErrors; i++ {
		if w.polled[i].Revents != 0 {
			w.copy(i)
		}
	}
}

// copy copies a piece of the output. What cannot be read has ended.
func (w *watch) copy(i int) {
	n, err := unix.Read(int(w.polled[i].Fd), w.piece[:])
	switch {
	case n > 0:
		_, _ = w.outputs[i].Write(w.piece[:n])
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
		w.done(i)
	}
}

// done closes a descriptor.
func (w *watch) done(i int) {
	shut(int(w.polled[i].Fd))
	w.polled[i].Fd = -1
}

// close closes all that is open but the bell, which is not its own.
func (w *watch) close() {
	w.done(itsEnd)
	w.done(itsOutput)
	w.done(itsErrors)
}

// reap takes the status of a child of ours that has ended, and lets go of its
// number.
func reap(pid int) (status syscall.WaitStatus, err error) {
	for {
		_, err = syscall.Wait4(pid, &status, 0, nil)
		if err == nil {
			return status, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return 0, lost(err)
		}
	}
}
