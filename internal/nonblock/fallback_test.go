package nonblock

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestAddressesAreInAFallbackSetForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s fallbackSet
		at := func(port uint16) netip.AddrPort {
			return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		}
		for round := range 3 {
			if s.Has(at(1)) {
				t.Errorf("round %d begins with an address", round)
			}
			s.Add(at(1))
			time.Sleep(fallbackFor - time.Second)
			s.Add(at(2))
			others := 0
			for port := range uint16(100) {
				if s.Has(at(1000 + port)) {
					others++
				}
			}
			if !s.Has(at(1)) || !s.Has(at(2)) || others > 50 {
				t.Errorf("round %d: has %v and %v, and %d other addresses", round, s.Has(at(1)), s.Has(at(2)), others)
			}
			time.Sleep(2 * time.Second)
		}
	})
}
