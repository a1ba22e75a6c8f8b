// Package clock counts time for what has to be done at a time. It goes on by the monotonic clock, so that
// nothing is moved when the wall clock is set, and by the time for which the machine was suspended: the
// monotonic clock stands still meanwhile, and other machines go on.
package clock

import (
	"slices"
	"sync/atomic"
	"time"
)

const (
	// tolerance is how long the machine is suspended at least. Less may be an error of the
	// measurement.
	tolerance = 100 * time.Millisecond

	maxEpochs = 17 // that are remembered: those after 16 suspensions
)

// Clock counts nanoseconds since 1970 as the wall clock showed them when it was made. 0 stands for no
// time. Its methods may be called concurrently.
type Clock struct {
	suspended func(now time.Time) time.Duration // for how long the machine was suspended since New

	epochs atomic.Pointer[[]epoch] // in their order; the first begins with New
}

// epoch is a time in which the machine was not suspended.
type epoch struct {
	zero      time.Time // when its begin was noticed
	nano      int64     // what the clock showed then
	suspended time.Duration
}

// New returns the clock of this machine. Suspension is noticed on Linux only.
func New() *Clock { return newClock(newMeter().suspended) }

// NewSuspended returns a clock that goes by what suspended returns: for how long the machine was suspended
// in all, which must not become less. It is for tests.
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

// Now returns the time.
func (c *Clock) Now() int64 {
	now := time.Now()
	all := c.look(now)
	e := &all[len(all)-1]
	return e.nano + int64(now.Sub(e.zero))
}

// Start returns what the clock showed when it was made.
func (c *Clock) Start() int64 { return (*c.epochs.Load())[0].nano }

// Suspended returns for how long the machine was suspended since New, as far as Now has noticed: what Now
// returns has it in it.
func (c *Clock) Suspended() time.Duration {
	all := *c.epochs.Load()
	return all[len(all)-1].suspended
}

// Resumed returns what the clock showed when Now noticed last that the machine had been suspended; 0 if it
// never was.
func (c *Clock) Resumed() int64 {
	all := *c.epochs.Load()
	if len(all) == 1 {
		return 0
	}
	return all[len(all)-1].nano
}

// At returns what the clock showed at t, and 0 for the zero time.
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

// Time is the reverse of At. The time has a reading of the monotonic clock.
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

// look returns the epochs. A new one begins if the machine was suspended.
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
			all = slices.Delete(all, 1, 2) // Start returns the first
		}
		if c.epochs.CompareAndSwap(before, &all) { // or another goroutine was first
			return all
		}
	}
}

// meter measures for how long the machine was suspended. That takes system calls, which it makes only
// when the wall clock was moved against the monotonic one: a suspension does so, too.
type meter struct {
	zero  time.Time
	begin time.Duration // what sinceBoot returned at zero

	ahead atomic.Int64 // by how much the wall clock was moved since zero when it was measured last
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
