package schedule

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Times are the regular times of a probe: one period apart, with an offset that depends only on the probe's ID and period. Probes
// are thus spread evenly, and keep their times after a restart or on another machine.
type Times struct {
	Period int64
	Offset int64 // of each regular time in its period, relative to 1970
}

// TimesOf returns the regular times of a probe.
func TimesOf(id probe.ID, period time.Duration) Times {
	return Times{Period: int64(period), Offset: int64(hash(id) % uint64(period))}
}

// From returns the first regular time at or after at.
func (t Times) From(at int64) int64 {
	return at + (t.Offset-at%t.Period+t.Period)%t.Period
}

// after returns the regular time of the attempt that follows one at now. It is at least half a period later, so that an extra
// attempt is not immediately followed by another attempt.
func (t Times) after(now int64) int64 { return t.From(now + t.Period/2) }

// hash is FNV-1a over the parts of the ID, with the finalizer of MurmurHash3 so that every bit of a short name matters. It must
// never change: see Times.
func hash(id probe.ID) uint64 {
	h := uint64(14695981039346656037)
	mix := func(s string) {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h *= 1099511628211 // terminates the part, as a zero byte would
	}
	mix(id.Target)
	mix(id.Name)
	h ^= uint64(id.Kind)
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
