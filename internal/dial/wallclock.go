package dial

import (
	"crypto/x509"
	"sync"
	"time"
)

const (
	// firstYear is the year in which this was written: a clock that shows an earlier one is
	// wrong, as that of a machine without a battery is after its start.
	firstYear = 2026

	// minStep is how far the clock must be set to put certificates in doubt, and doubtFor for
	// how long they are.
	minStep  = time.Minute
	doubtFor = time.Hour
)

// wallClock knows which times it may be. Whether a certificate is valid depends on the clock of
// this machine, and when that is set by mistake, the certificates of all targets seem to expire
// at once. So for an hour after it was set both the time before and the one after may be right. If
// the machine has slept, the clock has gone on without it, which looks the same.
type wallClock struct {
	mu     sync.Mutex    // guards all below
	ahead  time.Duration // how far the wall clock is ahead of the monotonic one, since the program has started
	low    time.Duration // of the values of ahead that may be right
	high   time.Duration
	lastAt time.Duration // on the monotonic clock: when the wall clock was set
}

var (
	clock   wallClock
	started = time.Now()
)

// Now returns the earliest and the latest time that it may be now, by a clock that may have been set by mistake, and false if the clock
// is certainly wrong.
func Now() (earliest, latest time.Time, isSane bool) {
	earliest, latest = observeClock()
	return earliest, latest, latest.Year() >= firstYear
}

// observeClock returns the earliest and the latest time that it may be now.
func observeClock() (earliest, latest time.Time) {
	now := time.Now()
	return clock.observe(now.Round(0), now.Sub(started), now.Round(0).Sub(started.Round(0)))
}

// observe returns the earliest and the latest time that it may be at now, a time on the wall clock.
// Elapsed is the time since the program has started on the monotonic clock, shown that on the wall
// clock.
func (c *wallClock) observe(now time.Time, elapsed, shown time.Duration) (earliest, latest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := shown - elapsed
	if step := (ahead - c.ahead).Abs(); step >= minStep {
		c.lastAt = elapsed
	} else if elapsed-c.lastAt >= doubtFor {
		c.low, c.high = ahead, ahead
	}
	c.ahead = ahead
	c.low, c.high = min(c.low, ahead), max(c.high, ahead)
	return now.Add(c.low - ahead), now.Add(c.high - ahead)
}

// mayBeValid reports whether a certificate that is not valid by the clock may be valid, since the
// clock may be wrong.
func mayBeValid(c *x509.Certificate) bool {
	earliest, latest := observeClock()
	return latest.Year() < firstYear || !latest.Before(c.NotBefore) && !earliest.After(c.NotAfter)
}
