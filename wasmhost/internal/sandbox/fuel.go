package sandbox

import (
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// A call gets at most maxFuel units of fuel at a time. It gets half as many as the last time
// when they lasted for longer than maxSlice, and twice as many again when they lasted for
// less than minSlice.
const (
	maxFuel  = module.MaxFuel
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
	delayed := max(took-max(longestSlice, time.Duration(f.slice)*module.SlowUnit), 0)
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

// isBusy reports whether a call that has lasted for a time, and ended late by a part of it, computed or lacked a
// processor for most of the time before. It did not wait for its target then. Of what it did too late it
// is assumed that it computed.
func (f *fuel) isBusy(lasted, late time.Duration) bool {
	return f.computed+f.waited+f.delayed-late > (lasted-late)/2
}

// grant sets what the guest may use from now on.
func (f *fuel) grant(units int32) {
	f.granted = units
	f.counter.Set(api.EncodeI32(units))
}
