// Package sparselog logs repeated failures: each message at most once per interval.
package sparselog

import (
	"cmp"
	"log/slog"
	"sync"
	"time"
)

// interval is the minimum time between two records of the same message.
const interval = time.Minute

// Logger writes to a slog.Logger. Create it with New. It is safe for concurrent use.
type Logger struct {
	log    *slog.Logger
	logged sync.Map // time.Time of the last record, by message
}

// New returns a Logger that writes to log, or nowhere if that is nil.
func New(log *slog.Logger) *Logger {
	return &Logger{log: cmp.Or(log, slog.New(slog.DiscardHandler))}
}

// Warn logs a message at level Warn, unless the same message was logged less than interval ago. The message must be a
// constant, since it is kept forever; variable parts belong in args.
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

// isDue reports whether a message is due, and records the time if it is.
func (l *Logger) isDue(message string) bool {
	now := time.Now()
	last, isLogged := l.logged.LoadOrStore(message, now)
	if isLogged && now.Sub(last.(time.Time)) < interval {
		return false
	}
	return !isLogged || l.logged.CompareAndSwap(message, last, now)
}
