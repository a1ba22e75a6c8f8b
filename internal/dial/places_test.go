package dial

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestOddPlacesAreRememberedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var odd OddPlaces
		place := func(port uint16) netip.AddrPort {
			return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		}
		for round := range 3 {
			if odd.Has(place(1)) {
				t.Errorf("round %d begins with a place", round)
			}
			odd.Add(place(1))
			time.Sleep(oddFor - time.Second)
			odd.Add(place(2))
			others := 0
			for port := range uint16(100) {
				if odd.Has(place(1000 + port)) {
					others++
				}
			}
			if !odd.Has(place(1)) || !odd.Has(place(2)) || others > 50 {
				t.Errorf("round %d: got %v and %v, and %d other places", round, odd.Has(place(1)), odd.Has(place(2)), others)
			}
			time.Sleep(2 * time.Second)
		}
	})
}
