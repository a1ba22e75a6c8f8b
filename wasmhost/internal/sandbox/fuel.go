package sandbox

import (
	"runtime"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/meter"
)

// A call gets at most maxFuel units of fuel at a time. It gets half as many as the last time
// when they lasted for longer than maxSlice, and twice as many again when they lasted for
// less than minSlice.
const (
	maxFuel  = meter.MaxFuel
	minSlice = 20 * time.Microsecond
	maxSlice = 200 * time.Microsecond
)

// longestSlice is longer than nearly all guests compute with what they get at a time, unless
// one instruction handles megabytes. For the rest of a longer slice the system ran other
// threads, or had stopped this process.
const longestSlice = 5 * time.Millisecond

// starvedShare is the part of a call's time, one in so many, that it may wait for slots
// without being starved.
const starvedShare = 8

// muchComputed is for how long a call has computed that is to blame when it is stopped, also if it
// was starved. Honest calls return long before.
const muchComputed = 10 * timeSlice

// fuel is what a call has got to compute with. It may use its first units without a slot.
type fuel struct {
	counter   api.MutableGlobal // what is left of granted
	granted   int32
	used      int64         // of what was granted before
	ahead     int64         // of it, for what is executed after the latest grant
	slice     int64         // for what was executed before it
	next      int32         // the units to grant next
	grantedAt time.Time     // zero unless the call had a slot from then on
	slotSince time.Time     // when the call got its slot; zero if it has none
	waited    time.Duration // for slots
	delayed   time.Duration // by the system, which ran other threads while the call had a slot
	computed  time.Duration // with a slot, except for what delayed it
}

// grantFirst gives a call its first fuel, at most left.
func (f *fuel) grantFirst(counter api.MutableGlobal, left int64) {
	f.counter, f.next = counter, maxFuel
	f.grant(int32(min(maxFuel, left)))
}

// total returns the units that were used.
func (f *fuel) total() int64 {
	return f.used + int64(f.granted) - int64(api.DecodeI32(f.counter.Get()))
}

// charge lets the guest pay for what the host computes next on its behalf: like its own code,
// that needs a slot once the first fuel is used up.
func (c *call) charge(units int) {
	left := int64(api.DecodeI32(c.fuel.counter.Get())) - int64(units)
	c.fuel.counter.Set(api.EncodeI32(int32(left)))
	if left < 0 {
		c.tick()
	}
}

// tick is called by a guest that has used up its fuel. It returns when it may go on.
func (c *call) tick() {
	f := &c.fuel
	f.use()
	c.stopIfDue()
	left := c.fuelLeft()
	if left <= 0 {
		c.reachLimit("fuel", abi.ENOSPC)
		panic(errLimit)
	}
	c.countGrowth()
	now := time.Now()
	if !f.grantedAt.IsZero() {
		switch took := f.endSlice(now); {
		case took < minSlice:
			f.next = min(2*f.next, maxFuel)
		case took > maxSlice:
			f.next = max(f.next/2, 1)
		}
	}
	f.grantedAt = c.acquireSlot(now)
	f.grant(int32(min(int64(f.next), left)))
}

// fuelLeft returns how much more an attempt may use. A start and a check of settings have a
// limit of time only.
func (c *call) fuelLeft() int64 {
	if c.state == nil {
		return maxFuel
	}
	return int64(c.sandbox.config.Limits.Fuel) - c.fuel.used
}

// use counts what was used, and leaves the guest nothing. An instruction that handles many
// bytes is paid for in advance, with more than was granted.
func (f *fuel) use() {
	left := int64(api.DecodeI32(f.counter.Get()))
	if left == 0 && f.granted == 0 {
		return // nothing was granted since
	}
	f.used = f.total()
	f.slice = f.ahead + int64(f.granted) - max(left, 0)
	f.ahead = max(-left, 0)
	f.grant(0)
}

// endSlice returns how long a guest has computed with what it was granted, and counts by
// how much the system has delayed it.
func (f *fuel) endSlice(now time.Time) time.Duration {
	took := now.Sub(f.grantedAt)
	delayed := max(took-max(longestSlice, time.Duration(f.slice)*meter.SlowUnit), 0)
	f.delayed += delayed
	f.computed += took - delayed
	f.grantedAt = time.Time{}
	return took
}

// isStarved reports whether a call that has lasted for a time could not use a notable part
// of it. A guest that never ends is also delayed on a busy machine, and is to blame if it had
// half of its time.
func (f *fuel) isStarved(lasted time.Duration) bool {
	return f.waited > lasted/starvedShare || f.waited+f.delayed > lasted/2
}

// grant sets what the guest may use from now on.
func (f *fuel) grant(units int32) {
	f.granted = units
	f.counter.Set(api.EncodeI32(units))
}

// acquireSlot waits until the guest may compute, and ends it when it is stopped meanwhile.
// A guest that has a slot keeps it unless others wait and its time slice is over. It
// returns the time, which is now if it did not wait.
func (c *call) acquireSlot(now time.Time) time.Time {
	f := &c.fuel
	if !f.slotSince.IsZero() {
		if now.Sub(f.slotSince) < timeSlice {
			return now
		}
		c.releaseSlot()
		runtime.Gosched() // to the engine's goroutines
		now = time.Now()
	}
	if !c.awaitSlot(now) {
		panic(errStopped)
	}
	return f.slotSince
}

// awaitSlot waits for a slot, and returns false if the call is stopped before it has one.
func (c *call) awaitSlot(now time.Time) bool {
	acquired := cpuSlots.acquire(&c.sandbox.slotQueue, c.stopped)
	granted := time.Now()
	c.fuel.waited += granted.Sub(now)
	if acquired {
		c.fuel.slotSince = granted
		c.instance.useAll()
	}
	return acquired
}

// releaseSlot gives the slot back, because the guest does not compute. What is left of its
// fuel goes with it: computing again needs a slot.
func (c *call) releaseSlot() {
	f := &c.fuel
	if f.slotSince.IsZero() {
		return
	}
	f.use()
	if !f.grantedAt.IsZero() {
		f.endSlice(time.Now())
	}
	f.slotSince = time.Time{}
	c.instance.returnUnused() // with the slot, since it takes processor time
	cpuSlots.release()
}
