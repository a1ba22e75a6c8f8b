// Package clock measures time for scheduled work. It follows the monotonic clock, so that setting the wall clock moves
// nothing, and adds the time for which the machine was suspended: the monotonic clock stops during suspension, while
// other machines continue.
package clock

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	// tolerance is the minimum duration of a suspension. Less may be an error of the measurement.
	tolerance = 100 * time.Millisecond

	maxEpochs = 17 // number of epochs that are kept: the first, and those after the latest 16 suspensions
)

// Clock counts nanoseconds since 1970, starting from the wall clock at its creation. 0 means no time. It is safe for
// concurrent use.
type Clock struct {
	suspended func(now time.Time) time.Duration // total suspension since New

	epochs atomic.Pointer[[]epoch] // in chronological order; the first begins with New
}

// epoch is a period in which the machine was not suspended.
type epoch struct {
	zero      time.Time // when its start was noticed
	nano      int64     // the time of the Clock at zero
	suspended time.Duration
}

// New returns a clock of this machine. It detects suspension on Linux only.
func New() *Clock { return newClock(newMeter().suspended) }

// NewSuspended returns a clock that gets the total duration of suspensions from suspended, whose result must not
// decrease. It is for tests.
func NewSuspended(suspended func() time.Duration) *Clock {
	before := suspended()
	return newClock(func(time.Time) time.Duration { return suspended() - before })
}

func newClock(suspended func(now time.Time) time.Duration) *Clock {
	c := &Clock{suspended: suspended}
	now := time.Now()
	c.epochs.Store(&[]epoch{{zero: now, nano: now.UnixNano()}})
	return c
}

// Now returns the current time.
func (c *Clock) Now() int64 {
	now := time.Now()
	all := c.look(now)
	e := &all[len(all)-1]
	return e.nano + int64(now.Sub(e.zero))
}

// Start returns the time at which the clock was created.
func (c *Clock) Start() int64 { return (*c.epochs.Load())[0].nano }

// Suspended returns for how long the machine was suspended since New, as far as Now has noticed. The time of Now
// includes it.
func (c *Clock) Suspended() time.Duration {
	all := *c.epochs.Load()
	return all[len(all)-1].suspended
}

// Resumed returns the time at which Now last noticed a suspension; 0 if there was none.
func (c *Clock) Resumed() int64 {
	all := *c.epochs.Load()
	if len(all) == 1 {
		return 0
	}
	return all[len(all)-1].nano
}

// At returns the time of the clock at t, or 0 for the zero time.
func (c *Clock) At(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	all := c.look(time.Now())
	i := len(all) - 1
	for i > 0 && t.Before(all[i].zero) {
		i--
	}
	return all[i].nano + int64(t.Sub(all[i].zero))
}

// Time is the inverse of At. Its result has a reading of the monotonic clock.
func (c *Clock) Time(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	all := *c.epochs.Load()
	i := len(all) - 1
	for i > 0 && at < all[i].nano {
		i--
	}
	return all[i].zero.Add(time.Duration(at - all[i].nano))
}

// look returns the epochs. It starts a new one if the machine was suspended.
func (c *Clock) look(now time.Time) []epoch {
	for {
		before := c.epochs.Load()
		last, suspended := (*before)[len(*before)-1], c.suspended(now)
		if suspended-last.suspended < tolerance {
			return *before
		}
		next := epoch{zero: now, nano: last.nano + int64(now.Sub(last.zero)+suspended-last.suspended), suspended: suspended}
		all := append(slices.Clone(*before), next)
		if len(all) > maxEpochs {
			all = slices.Delete(all, 1, 2) // the first is kept for Start
		}
		if c.epochs.CompareAndSwap(before, &all) { // otherwise another goroutine was faster
			return all
		}
	}
}

// meter measures for how long the machine was suspended. That takes system calls, which it makes only if the wall clock
// has moved relative to the monotonic clock, as it does during a suspension.
type meter struct {
	zero  time.Time
	begin time.Duration // sinceBoot at zero

	ahead atomic.Int64 // movement of the wall clock since zero, at the latest measurement
	total atomic.Int64
}

func newMeter() *meter { return &meter{zero: time.Now(), begin: sinceBoot()} }

func (m *meter) suspended(now time.Time) time.Duration {
	ahead := int64(now.Round(0).Sub(m.zero.Round(0)) - now.Sub(m.zero))
	if moved := time.Duration(ahead - m.ahead.Load()); moved.Abs() >= tolerance/2 {
		m.total.Store(int64(sinceBoot() - m.begin))
		m.ahead.Store(ahead)
	}
	return time.Duration(m.total.Load())
}
