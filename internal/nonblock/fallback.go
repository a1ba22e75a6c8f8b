package nonblock

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

// fallbackSet has the addresses whose attempts need Probe, for ten minutes, so that not every attempt there is begun twice. The
// zero value is empty. It is safe for concurrent use by multiple goroutines.
//
// It is a hash table without collision handling: it may report an address because of another one.
type fallbackSet struct{ table atomic.Pointer[fallbackTable] }

const (
	// fallbackFor is how long addresses are kept: with the kubelet's period of 10s, one of 60 attempts is begun twice.
	fallbackFor = 10 * time.Minute

	// fallbackBits is the number of bits in a table: 1 KiB.
	fallbackBits = 1 << 13
)

type fallbackTable struct {
	seed  maphash.Seed
	until time.Time
	bits  [fallbackBits / 64]atomic.Uint64
}

// Has reports whether an address was added within the last ten minutes.
func (s *fallbackSet) Has(addr netip.AddrPort) bool {
	table := s.table.Load()
	if table == nil {
		return false
	}
	word, bit := table.at(addr)
	return word.Load()&bit != 0 && time.Now().Before(table.until)
}

// Add adds an address. All addresses expire together, ten minutes after the first.
func (s *fallbackSet) Add(addr netip.AddrPort) {
	table := s.table.Load()
	if now := time.Now(); table == nil || !now.Before(table.until) {
		empty := &fallbackTable{seed: maphash.MakeSeed(), until: now.Add(fallbackFor)}
		if !s.table.CompareAndSwap(table, empty) {
			empty = s.table.Load()
		}
		table = empty
	}
	word, bit := table.at(addr)
	word.Or(bit)
}

func (t *fallbackTable) at(addr netip.AddrPort) (word *atomic.Uint64, bit uint64) {
	n := maphash.Comparable(t.seed, addr) % fallbackBits
	return &t.bits[n/64], 1 << (n % 64)
}
