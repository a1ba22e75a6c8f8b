package engine

import "time"

// clock counts nanoseconds since 1970 as the wall clock showed them when the engine
// was made, and continues by the monotonic clock: setting the wall clock moves no
// probe. 0 stands for no time.
type clock struct {
	zero time.Time
	nano int64 // zero's
}

func newClock() clock {
	now := time.Now()
	return clock{zero: now, nano: now.UnixNano()}
}

func (c *clock) now() int64 { return c.nano + int64(time.Since(c.zero)) }

// at returns t on the clock.
func (c *clock) at(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return c.nano + int64(t.Sub(c.zero))
}

// time is the reverse of at.
func (c *clock) time(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return c.zero.Add(time.Duration(at - c.nano))
}
