package wasmhost

import (
	"sync"
	"time"
)

// breaker suspends a plugin that does little else than trap, or that traps so often
// that it costs too much.
type breaker struct {
	mu       sync.Mutex
	window   time.Time // when the attempts below began to be counted
	attempts int
	traps    int
	until    time.Time     // suspended until then
	backOff  time.Duration // of the last suspension
	times    uint64        // how often it was suspended
}

// When a plugin is suspended, and for how long.
const (
	trapWindow  = time.Minute
	fewTraps    = 5  // in a window, when they are half of the attempts or more
	manyTraps   = 60 // in a window, in any case
	minSuspend  = 10 * time.Second
	maxSuspend  = 5 * time.Minute
	calmAfter   = 10 * time.Minute // without a suspension, the next one is a short one
	trapsInHalf = 2                // traps times this must reach the attempts
)

// suspended returns for how long the plugin is still suspended; 0 when it is not.
func (b *breaker) suspended(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(b.until.Sub(now), 0)
}

// count counts an attempt, and reports for how long it has the plugin suspended; 0 when
// it has not.
func (b *breaker) count(trapped bool, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.window) >= trapWindow {
		b.window, b.attempts, b.traps = now, 0, 0
	}
	b.attempts++
	if !trapped {
		return 0
	}
	b.traps++
	mostly := b.traps >= fewTraps && b.traps*trapsInHalf >= b.attempts
	if now.Before(b.until) || !mostly && b.traps < manyTraps {
		return 0
	}
	if now.Sub(b.until) > calmAfter {
		b.backOff = 0
	}
	b.backOff = min(max(2*b.backOff, minSuspend), maxSuspend)
	b.until, b.window = now.Add(b.backOff), time.Time{}
	b.times++
	return b.backOff
}
