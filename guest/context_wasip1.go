package guest

import (
	"context"
	"sync"
	"time"
)

// lazyContext is the context of an attempt. It starts a timer only when a caller waits for
// its end or derives a context from it: most plugins only use its deadline.
type lazyContext struct {
	deadline time.Time
	once     sync.Once
	timer    context.Context
	cancel   context.CancelFunc
}

func (l *lazyContext) start() context.Context {
	l.once.Do(func() { l.timer, l.cancel = context.WithDeadline(context.Background(), l.deadline) })
	return l.timer
}

// Deadline returns the attempt's deadline.
func (l *lazyContext) Deadline() (time.Time, bool) { return l.deadline, true }

// Done returns a channel that is closed at the deadline, and when the attempt ends.
func (l *lazyContext) Done() <-chan struct{} { return l.start().Done() }

// Err returns an error after the deadline.
func (l *lazyContext) Err() error {
	if l.timer == nil && time.Now().Before(l.deadline) {
		return nil
	}
	return l.start().Err()
}

// Value returns nil, except for keys of package context.
func (l *lazyContext) Value(key any) any { return l.start().Value(key) }

// end ends the context with its attempt.
func (l *lazyContext) end() {
	if l.cancel != nil {
		l.cancel()
	}
}
