// Package sparselog logs what fails again and again: a line of each message once in a while.
package sparselog

import (
	"cmp"
	"log/slog"
	"sync"
	"time"
)

// interval is how often a message is logged at most.
const interval = time.Minute

// Logger writes to a slog.Logger. Create it with New. Its methods may be called by multiple goroutines at once.
type Logger struct {
	log    *slog.Logger
	logged sync.Map // when each message was logged last
}

// New returns a Logger that writes to log, or nowhere if that is nil.
func New(log *slog.Logger) *Logger {
	return &Logger{log: cmp.Or(log, slog.New(slog.DiscardHandler))}
}

// Warn logs a message at level Warn, unless the same message was logged less than interval ago. A message must be a
// constant, since it is remembered; what differs from call to call belongs into args.
func (l *Logger) Warn(message string, args ...any) {
	if l.isDue(message) {
		l.log.Warn(message, args...)
	}
}

// Error is Warn at level Error.
func (l *Logger) Error(message string, args ...any) {
	if l.isDue(message) {
		l.log.Error(message, args...)
	}
}

// isDue reports whether a message is to be logged now, and remembers that.
func (l *Logger) isDue(message string) bool {
	now := time.Now()
	last, isLogged := l.logged.LoadOrStore(message, now)
	if isLogged && now.Sub(last.(time.Time)) < interval {
		return false
	}
	return !isLogged || l.logged.CompareAndSwap(message, last, now)
}
