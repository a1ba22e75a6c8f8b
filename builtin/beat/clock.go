package beatprobe

import (
	"slices"
	"time"
)

const (
	// suspensionTolerance is how long the machine is suspended at least. Less is an error of the
	// measurement.
	suspensionTolerance = 100 * time.Millisecond

	maxSuspensions = 16 // whose ends are remembered
)

// clock counts nanoseconds since 1970 as the wall clock showed them when it was made, and goes on by
// the monotonic clock, and by the time for which the machine was suspended: senders on other machines
// go on meanwhile. 0 stands for no time.
type clock struct {
	zero  time.Time
	start int64 // what it showed when it was made
	nano  int64 // start, and all suspensions since

	suspended   func() time.Duration // how long the machine was suspended since some time
	total       time.Duration        // what suspended has returned
	suspensions []suspension         // since zero, in their order; the last maxSuspensions
}

// suspension is a time in which the machine was suspended.
type suspension struct {
	noticed time.Time
	length  time.Duration
}

func newClock() clock {
	now := time.Now()
	return clock{zero: now, start: now.UnixNano(), nano: now.UnixNano(), suspended: suspended, total: suspended()}
}

// now returns the time. It adds what the machine was suspended for since it was called last.
func (c *clock) now() int64 {
	now := time.Now()
	if length := c.suspended() - c.total; length >= suspensionTolerance {
		c.total += length
		c.nano += int64(length)
		if len(c.suspensions) == maxSuspensions {
			c.suspensions = slices.Delete(c.suspensions, 0, 1)
		}
		c.suspensions = append(c.suspensions, suspension{now, length})
	}
	return c.nano + int64(now.Sub(c.zero))
}

// at returns what the clock showed at t.
func (c *clock) at(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	at := c.nano + int64(t.Sub(c.zero))
	for _, s := range c.suspensions {
		if t.Before(s.noticed) {
			at -= int64(s.length)
		}
	}
	return at
}

// time returns the wall time, as it is set now, at which the clock showed at.
func (c *clock) time(at int64) time.Time {
	return time.Now().Add(time.Duration(at - c.now())).Round(0)
}
