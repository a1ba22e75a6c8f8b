package probe_test

import (
	"fmt"
	"testing"

	"github.com/sonde-probe/sonde/probe"
)

// All whole percentages of a hundred are exact, although binary fractions are not.
func TestSharesOfAHundredAreExact(t *testing.T) {
	for percent := 1; percent <= 100; percent++ {
		var s probe.Share
		if err := s.UnmarshalText(fmt.Appendf(nil, "%d%%", percent)); err != nil {
			t.Fatal(err)
		}
		if got := s.Of(100); got != percent {
			t.Errorf("%v of 100 = %d", s, got)
		}
		if got := (probe.Minimum{Share: s}).Of(100); got != percent {
			t.Errorf("at least %v of 100 = %d", s, got)
		}
	}
}

func TestAShareIsRoundedDown(t *testing.T) {
	for _, tt := range []struct {
		s       probe.Share
		n, want int
	}{
		{0.5, 3, 1},
		{0.5, 0, 0},
		{0.1, 9, 0},
		{0.1, 30, 3},
		{1, 1_000_000, 1_000_000},
	} {
		if got := tt.s.Of(tt.n); got != tt.want {
			t.Errorf("%v of %d = %d, want %d", tt.s, tt.n, got, tt.want)
		}
	}
}
