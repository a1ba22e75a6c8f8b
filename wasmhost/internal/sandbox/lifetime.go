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

// lifetime says when a call is over: when the deadline of its attempt has passed, or the attempt was
// cancelled. The guest may then end in its own way, and is stopped abi.Grace later.
type lifetime struct {
	ctx          context.Context // of the attempt
	pastDeadline chan struct{}   // closed when the call is over
	stopped      chan struct{}   // closed when the call is stopped
	stopping     *time.Timer     // closes stopped; set before pastDeadline is closed
	stalled      atomic.Bool     // interrupt was called too late
}

// maxInterruptDelay is how late after the deadline a call may be interrupted. More is a
// stall of this process, and says nothing about the guest.
const maxInterruptDelay = abi.Grace / 2

// errStopped is the panic that ends a guest which goes on after it was stopped.
var errStopped = fmt.Errorf("stopped: it still ran %v after the deadline", abi.Grace)

func (l *lifetime) begin() {
	l.pastDeadline, l.stopped = make(chan struct{}), make(chan struct{})
}

// interrupt says that the call is over, and schedules its stop. It is called once, after ctx is done.
func (l *lifetime) interrupt() {
	grace := abi.Grace
	if end, ok := l.ctx.Deadline(); ok {
		late := time.Since(end)
		l.stalled.Store(late > maxInterruptDelay)
		grace -= min(max(late, 0), maxInterruptDelay)
	}
	l.stopping = time.AfterFunc(grace, func() { close(l.stopped) })
	close(l.pastDeadline)
}

// cancelStop cancels the stop that interrupt schedules, which was called or is running.
func (l *lifetime) cancelStop() {
	<-l.pastDeadline
	l.stopping.Stop()
}

// isOver reports whether the deadline has passed, or the attempt was cancelled.
func (l *lifetime) isOver() bool { return isClosed(l.pastDeadline) }

// stopIfDue ends a guest that was stopped.
func (l *lifetime) stopIfDue() {
	if isClosed(l.stopped) {
		panic(errStopped)
	}
}

// remaining returns the time to the deadline, at least 0.
func (l *lifetime) remaining() time.Duration {
	end, ok := l.ctx.Deadline()
	if !ok {
		return forever
	}
	return max(time.Until(end), 0)
}

// late returns for how long the deadline has passed, at least 0.
func (l *lifetime) late() time.Duration {
	if end, ok := l.ctx.Deadline(); ok {
		return max(time.Since(end), 0)
	}
	return 0
}

// forever is longer than any attempt.
const forever time.Duration = 1 << 62

// overError is the error of a host call that is made when the call is over.
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
