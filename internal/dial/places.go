package dial

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

// OddPlaces remembers for a while where attempts could not be made in steps, so
// that they are not begun twice each time. The zero value remembers nothing. It is
// safe for use by many goroutines at once.
//
// Collisions are not resolved: a place may be taken for odd because of another, and
// when very many are, all are.
type OddPlaces struct{ set atomic.Pointer[placeSet] }

const (
	// oddFor is how long places are remembered: at the kubelet's period of 10s, one
	// attempt of 60 is begun twice.
	oddFor = 10 * time.Minute

	// placeBits makes a set of one KiB.
	placeBits = 1 << 13
)

type placeSet struct {
	seed  maphash.Seed
	until time.Time
	bits  [placeBits / 64]atomic.Uint64
}

// Has reports whether a place was added and is not forgotten yet.
func (o *OddPlaces) Has(at netip.AddrPort) bool {
	set := o.set.Load()
	if set == nil {
		return false
	}
	word, bit := set.place(at)
	return word.Load()&bit != 0 && time.Now().Before(set.until)
}

// Add remembers a place. All places are forgotten together.
func (o *OddPlaces) Add(at netip.AddrPort) {
	set := o.set.Load()
	if now := time.Now(); set == nil || !now.Before(set.until) {
		fresh := &placeSet{seed: maphash.MakeSeed(), until: now.Add(oddFor)}
		if !o.set.CompareAndSwap(set, fresh) {
			fresh = o.set.Load()
		}
		set = fresh
	}
	word, bit := set.place(at)
	word.Or(bit)
}

func (s *placeSet) place(at netip.AddrPort) (word *atomic.Uint64, bit uint64) {
	n := maphash.Comparable(s.seed, at) % placeBits
	return &s.bits[n/64], 1 << (n % 64)
}
