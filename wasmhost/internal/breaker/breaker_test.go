package breaker

import (
	"testing"
	"time"
)

func TestAPluginThatMostlyTrapsIsSuspended(t *testing.T) {
	start := time.Unix(1000, 0)
	tests := map[string]struct {
		attempts string // t for a trap, . for an attempt without one
		want     int    // index of the attempt that suspends it; -1 for none
	}{
		"nothing but traps":       {"ttttt", 4},
		"too few traps":           {"tttt", -1},
		"half of the attempts":    {".....ttttt", 9},
		"less than half":          {"......ttttt", -1},
		"less than half at first": {"......tttttt", 11},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var b Breaker
			at := -1
			for i, c := range test.attempts {
				if b.Count(c == 't', start.Add(time.Duration(i)*time.Second)) > 0 {
					at = i
				}
			}
			if at != test.want {
				t.Errorf("suspended at %d, want %d", at, test.want)
			}
		})
	}
}

func TestAPluginWithTooManyTrapsIsSuspended(t *testing.T) {
	var b Breaker
	for i := range 1000 {
		trapped := i%10 == 0
		if b.Count(trapped, time.Unix(1000, 0)) > 0 {
			if want := 10 * (maxTraps - 1); i != want {
				t.Errorf("suspended at %d, want %d", i, want)
			}
			return
		}
	}
	t.Error("not suspended")
}

func TestSuspensionsGrowAndAreForgotten(t *testing.T) {
	var b Breaker
	now := time.Unix(1000, 0)
	trapUntilSuspended := func() (d time.Duration) {
		for d == 0 {
			d = b.Count(true, now)
		}
		return d
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		got := trapUntilSuspended()
		if got != want*time.Second || b.Remaining(now) != got {
			t.Errorf("suspended for %v, want %vs", got, want)
		}
		now = now.Add(got)
		if b.Remaining(now) != 0 {
			t.Error("still suspended at the end")
		}
	}
	if got := b.Suspensions(); got != 7 {
		t.Errorf("%d suspensions", got)
	}
	now = now.Add(backOffLifetime + time.Second)
	if got := trapUntilSuspended(); got != minSuspension {
		t.Errorf("after a time without traps: suspended for %v", got)
	}
}

func TestTrapsInDifferentWindowsDoNotAddUp(t *testing.T) {
	var b Breaker
	for i := range 100 {
		if b.Count(true, time.Unix(int64(1000+20*i), 0)) > 0 {
			t.Fatal("3 traps a minute suspend the plugin")
		}
	}
}
