package guest

import (
	"context"
	"sync"
	"time"
)

// lazy is the context of an attempt. It starts a timer only for those who wait for
// its end or derive others from it: most plugins use its deadline alone.
type lazy struct {
	deadline time.Time
	once     sync.Once
	timer    context.Context
	cancel   context.CancelFunc
}

func (l *lazy) start() context.Context {
	l.once.Do(func() { l.timer, l.cancel = context.WithDeadline(context.Background(), l.deadline) })
	return l.timer
}

// Deadline returns the attempt's deadline.
func (l *lazy) Deadline() (time.Time, bool) { return l.deadline, true }

// Done returns a channel that is closed at the deadline, and when the attempt ends.
func (l *lazy) Done() <-chan struct{} { return l.start().Done() }

// Err returns an error after the deadline.
func (l *lazy) Err() error {
	if l.timer == nil && time.Now().Before(l.deadline) {
		return nil
	}
	return l.start().Err()
}

// Value returns nothing but what package context keeps for itself.
func (l *lazy) Value(key any) any { return l.start().Value(key) }

// end ends the context with its attempt.
func (l *lazy) end() {
	if l.cancel != nil {
		l.cancel()
	}
}
