package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// lifetime is the time limit of a call. The call is over when the deadline of its attempt has passed
// or the attempt was cancelled. The guest may then still return by itself; it is stopped abi.Grace
// later.
type lifetime struct {
	ctx          context.Context // of the attempt
	pastDeadline chan struct{}   // closed when the call is over
	stopped      chan struct{}   // closed when the call is stopped
	stopping     *time.Timer     // closes stopped; set before pastDeadline is closed
	stalled      atomic.Bool     // interrupt was called too late
}

// maxInterruptDelay is the maximum delay after the deadline at which a call is expected to be
// interrupted. A longer delay is a stall of this process, for which the guest is not to blame.
const maxInterruptDelay = abi.Grace / 2

// errStopped is the panic value that ends a guest that continues to run after its stop.
var errStopped = fmt.Errorf("stopped: it still ran %v after the deadline", abi.Grace)

func (l *lifetime) begin() {
	l.pastDeadline, l.stopped = make(chan struct{}), make(chan struct{})
}

// interrupt marks the call as over and schedules its stop. It must be called once, after ctx is done.
func (l *lifetime) interrupt() {
	late := l.late()
	l.stalled.Store(late > maxInterruptDelay)
	grace := abi.Grace - min(late, maxInterruptDelay)
	l.stopping = time.AfterFunc(grace, func() { close(l.stopped) })
	close(l.pastDeadline)
}

// cancelStop cancels the stop that interrupt schedules. interrupt must have been called; it may
// still be running.
func (l *lifetime) cancelStop() {
	<-l.pastDeadline
	l.stopping.Stop()
}

// isOver reports whether the deadline has passed, or the attempt was cancelled.
func (l *lifetime) isOver() bool { return isClosed(l.pastDeadline) }

// stopIfDue panics with errStopped if the call was stopped.
func (l *lifetime) stopIfDue() {
	if isClosed(l.stopped) {
		panic(errStopped)
	}
}

// remaining returns the time until the deadline, at least 0.
func (l *lifetime) remaining() time.Duration {
	end, ok := l.ctx.Deadline()
	if !ok {
		return forever
	}
	return max(time.Until(end), 0)
}

// late returns the time since the deadline, at least 0.
func (l *lifetime) late() time.Duration {
	if end, ok := l.ctx.Deadline(); ok {
		return max(time.Since(end), 0)
	}
	return 0
}

// forever is longer than any attempt.
const forever time.Duration = 1 << 62

// overError returns the error of host calls that are made after the call is over.
func (l *lifetime) overError() HostError {
	if errors.Is(l.ctx.Err(), context.Canceled) {
		return networkError(dial.Cancelled())
	}
	return HostError{Errno: abi.ETIMEDOUT, Reason: probe.ReasonTCPTimeout, Detail: "the deadline has passed"}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
