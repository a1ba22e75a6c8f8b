package sandbox

import (
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// A call is granted at most maxFuel units of fuel at a time. The next grant is halved if the guest
// took longer than maxSlice to use the last one, and doubled if it took less than minSlice.
const (
	maxFuel  = module.MaxFuel
	minSlice = 20 * time.Microsecond
	maxSlice = 200 * time.Microsecond
)

// longestSlice is more time than nearly any guest computes with one grant, unless a single
// instruction handles megabytes. If a slice takes longer, the system ran other threads or stopped
// this process for the rest of it.
const longestSlice = 5 * time.Millisecond

// starvedShare is a divisor: a call is starved if it waited for slots for more than 1/starvedShare
// of its time.
const starvedShare = 8

// muchComputed is the computing time above which a call is to blame when it is stopped, even if it
// was starved. Honest calls return long before.
const muchComputed = 10 * timeSlice

// fuel counts the fuel of a call, and times its slices. The call may use its first grant without a
// slot.
type fuel struct {
	counter   api.MutableGlobal // the unused part of granted
	granted   int32
	used      int64         // units used from earlier grants
	ahead     int64         // the part of used that pays for code executed after the latest grant
	slice     int64         // units for code executed before the latest grant
	next      int32         // units of the next grant
	grantedAt time.Time     // start of the current slice; zero without a slot
	slotSince time.Time     // time at which the call got its slot; zero if it has none
	waited    time.Duration // time spent waiting for slots
	delayed   time.Duration // time in which the system ran other threads while the call had a slot
	computed  time.Duration // time with a slot, without delayed
}

// grantFirst makes the first grant of a call, of at most left units.
func (f *fuel) grantFirst(counter api.MutableGlobal, left int64) {
	f.counter, f.next = counter, maxFuel
	f.grant(int32(min(maxFuel, left)))
}

// total returns the number of units used.
func (f *fuel) total() int64 {
	return f.used + int64(f.granted) - int64(api.DecodeI32(f.counter.Get()))
}

// use counts the used units and revokes the rest of the grant. An instruction that handles many
// bytes is paid for in advance, possibly with more units than were granted.
func (f *fuel) use() {
	left := int64(api.DecodeI32(f.counter.Get()))
	if left == 0 && f.granted == 0 {
		return // nothing was granted since the last use
	}
	f.used = f.total()
	f.slice = f.ahead + int64(f.granted) - max(left, 0)
	f.ahead = max(-left, 0)
	f.grant(0)
}

// endSlice ends the current slice and returns its length. It adds the slice to computed and
// delayed.
func (f *fuel) endSlice(now time.Time) time.Duration {
	took := now.Sub(f.grantedAt)
	delayed := max(took-max(longestSlice, time.Duration(f.slice)*module.SlowUnit), 0)
	f.delayed += delayed
	f.computed += took - delayed
	f.grantedAt = time.Time{}
	return took
}

// isStarved reports whether a call that lasted for lasted could not compute for a notable part of
// that time. A guest that never returns is delayed on a busy machine as well; it is to blame if it
// had at least half of the time.
func (f *fuel) isStarved(lasted time.Duration) bool {
	return f.waited > lasted/starvedShare || f.waited+f.delayed > lasted/2
}

// isBusy reports whether a call, which lasted for lasted and ended late after its deadline, computed or lacked a
// processor for most of the time until the deadline, instead of waiting for its target. It is assumed to have
// computed for all of the time after the deadline.
func (f *fuel) isBusy(lasted, late time.Duration) bool {
	return f.computed+f.waited+f.delayed-late > (lasted-late)/2
}

// grant sets the number of units that the guest may use from now on.
func (f *fuel) grant(units int32) {
	f.granted = units
	f.counter.Set(api.EncodeI32(units))
}
