// Package breaker suspends a plugin whose attempts mostly trap, or that traps so often
// that the traps cost too much.
package breaker

import (
	"sync"
	"time"
)

// Breaker counts the attempts of one plugin. The zero value is ready to use.
type Breaker struct {
	mu          sync.Mutex
	windowStart time.Time
	attempts    int // in the window
	traps       int // in the window
	until       time.Time
	backOff     time.Duration // length of the last suspension
	suspensions uint64
}

// When a plugin is suspended, and for how long.
const (
	window          = time.Minute
	minTraps        = 5                // in a window, when they are at least half of the attempts
	maxTraps        = 60               // in a window, whatever else was attempted
	minSuspension   = 10 * time.Second // doubles with each suspension
	maxSuspension   = 5 * time.Minute
	backOffLifetime = 10 * time.Minute // without a suspension; then the next one is a short one
)

// Remaining returns how long the plugin is still suspended; 0 when it is not.
func (b *Breaker) Remaining(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.until.Sub(now), 0)
}

// Suspensions returns how often the plugin was suspended.
func (b *Breaker) Suspensions() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.suspensions
}

// Count counts an attempt. When that suspends the plugin, it returns for how long, else 0.
func (b *Breaker) Count(trapped bool, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.windowStart) >= window {
		b.windowStart, b.attempts, b.traps = now, 0, 0
	}
	b.attempts++
	if !trapped {
		return 0
	}
	b.traps++
	mostlyTraps := b.traps >= minTraps && 2*b.traps >= b.attempts
	if now.Before(b.until) || !mostlyTraps && b.traps < maxTraps {
		return 0
	}
	if now.Sub(b.until) > backOffLifetime {
		b.backOff = 0
	}
	b.backOff = min(max(2*b.backOff, minSuspension), maxSuspension)
	b.until, b.windowStart = now.Add(b.backOff), time.Time{}
	b.suspensions++
	return b.backOff
}
