package guest

import (
	"context"
	"sync"
	"time"
)

// lazyContext is the context of an attempt. It asks for the time only when a caller does, and
// starts a timer only when one waits for its end or derives a context from it: most plugins
// leave the deadline to the host.
type lazyContext struct {
	deadline time.Time // zero until a caller has asked for it
	once     sync.Once
	timer    context.Context
	cancel   context.CancelFunc
}

func (l *lazyContext) start() context.Context {
	timed = true
	l.once.Do(func() { l.timer, l.cancel = context.WithDeadline(context.Background(), l.end()) })
	return l.timer
}

// end returns the attempt's deadline. There is one thread only, so it needs no lock.
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

// timed reports that the context of the attempt has a timer, by which a library may close a connection.
var timed bool

// stop ends the context with its attempt.
func (l *lazyContext) stop() {
	if l.cancel != nil {
		l.cancel()
	}
}
