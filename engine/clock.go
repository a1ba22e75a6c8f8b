package engine

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// clock counts nanoseconds since 1970 as the wall clock had them when the engine
// was made, and goes on by the monotonic clock: a step of the wall clock moves no
// probe.
type clock struct {
	zero time.Time
	nano int64 // zero's
}

func newClock() clock {
	now := time.Now()
	return clock{zero: now, nano: now.UnixNano()}
}

func (c *clock) now() int64                   { return c.nano + int64(time.Since(c.zero)) }
func (c *clock) until(at int64) time.Duration { return time.Duration(at - c.now()) }

// at returns t on the clock, and 0 for the zero time.
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

// turn returns the first turn of a probe at or after at: its turns lie a period
// apart, at a phase that only its ID and its period decide. Probes are so spread
// evenly, and have the same turns after a restart or on another machine.
func turn(id probe.ID, period time.Duration, at int64) int64 {
	p := int64(period)
	phase := int64(hash(id) % uint64(p))
	ahead := (phase - at%p + p) % p
	return at + ahead
}

// hash is FNV-1a over the ID's parts, with the finish of MurmurHash3 so that
// every bit of a short name counts. It must never change: see turn.
func hash(id probe.ID) uint64 {
	h := uint64(14695981039346656037)
	mix := func(s string) {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h *= 1099511628211 // ends the part, as a zero byte would
	}
	mix(id.Target)
	mix(id.Name)
	h ^= uint64(id.Kind)
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// paceBurst is how far first attempts may run ahead of the start rate: what
// falls due together within it is started together.
const paceBurst = 50 * time.Millisecond

// pace spreads first attempts: the generic cell rate algorithm.
type pace struct {
	every int64 // nanoseconds between two attempts in the long run
	burst int64 // nanoseconds that attempts may come early
	next  int64 // when the next attempt would come, were there no burst
}

// slot returns when an attempt that is ready at now may start. It is only taken
// when take is called.
func (p *pace) slot(now int64) int64 { return max(now, p.next-p.burst) }

func (p *pace) take(now int64) { p.next = max(p.next, now) + p.every }
