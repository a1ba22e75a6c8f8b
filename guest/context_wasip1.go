package guest

import (
	"context"
	"sync"
	"time"
)

// lazyContext is the context of an attempt. It queries the time only when a caller requests the
// deadline, and starts a timer only when a caller waits for Done or derives a context: most plugins
// leave the deadline to the host.
type lazyContext struct {
	deadline time.Time // zero until first requested
	once     sync.Once
	timer    context.Context
	cancel   context.CancelFunc
}

func (l *lazyContext) start() context.Context {
	timed = true
	l.once.Do(func() { l.timer, l.cancel = context.WithDeadline(context.Background(), l.end()) })
	return l.timer
}

// end returns the attempt's deadline. It needs no lock, because there is only one thread.
func (l *lazyContext) end() time.Time {
	if l.deadline.IsZero() {
		l.deadline = time.Now().Add(time.Duration(hostRemaining()))
	}
	return l.deadline
}

// Deadline returns the attempt's deadline.
func (l *lazyContext) Deadline() (time.Time, bool) { return l.end(), true }

// Done returns a channel that is closed at the deadline, and when the attempt ends.
func (l *lazyContext) Done() <-chan struct{} { return l.start().Done() }

// Err returns an error after the deadline.
func (l *lazyContext) Err() error {
	if l.timer == nil && hostRemaining() > 0 {
		return nil
	}
	return l.start().Err()
}

// Value returns nil, except for keys of package context.
func (l *lazyContext) Value(key any) any { return l.start().Value(key) }

// timed is true if the context of the attempt has a timer, which a library may use to close a
// connection.
var timed bool

// stop cancels the context at the end of the attempt.
func (l *lazyContext) stop() {
	if l.cancel != nil {
		l.cancel()
	}
}
