package dial

import (
	"crypto/x509"
	"sync"
	"time"
)

const (
	// firstYear is the year in which this was written: a clock that shows an earlier year is wrong, as on a machine without a clock
	// battery after its start.
	firstYear = 2026

	// minStep is the minimum step of the clock that makes certificates doubtful, and doubtFor how long they stay so.
	minStep  = time.Minute
	doubtFor = time.Hour
)

// wallClock tracks the range of possible current times. Whether a certificate is valid depends on the clock of this machine; if it
// is set by mistake, the certificates of all targets seem to expire at once. So for an hour after the clock was set, both the time
// before and the time after the step may be right. If the machine was suspended, the clock has advanced meanwhile, which looks the
// same.
type wallClock struct {
	mu     sync.Mutex    // guards all below
	ahead  time.Duration // how far the wall clock is ahead of the monotonic clock, since the program started
	low    time.Duration // lowest possible value of ahead
	high   time.Duration // highest possible value of ahead
	lastAt time.Duration // when the wall clock was last set, on the monotonic clock
}

var (
	clock   wallClock
	started = time.Now()
)

// Now returns the earliest and the latest possible current time, given that the clock may have been set by mistake. IsSane is false
// if the clock is certainly wrong.
func Now() (earliest, latest time.Time, isSane bool) {
	earliest, latest = observeClock()
	return earliest, latest, latest.Year() >= firstYear
}

// observeClock returns the earliest and the latest possible current time.
func observeClock() (earliest, latest time.Time) {
	now := time.Now()
	return clock.observe(now.Round(0), now.Sub(started), now.Round(0).Sub(started.Round(0)))
}

// observe returns the earliest and the latest possible current time at now, a time on the wall clock. Elapsed is the time since the
// program started by the monotonic clock, shown by the wall clock.
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

// mayBeValid reports whether a certificate that is invalid by the clock may be valid, because the clock may be wrong.
func mayBeValid(c *x509.Certificate) bool {
	earliest, latest := observeClock()
	return latest.Year() < firstYear || !latest.Before(c.NotBefore) && !earliest.After(c.NotAfter)
}
