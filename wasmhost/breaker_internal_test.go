package wasmhost

import (
	"testing"
	"time"
)

func TestAPluginIsSuspendedWhenItMostlyTraps(t *testing.T) {
	start := time.Unix(1000, 0)
	tests := map[string]struct {
		traps string // t for a trap, . for an attempt without
		at    int    // where it is suspended; -1 for never
	}{
		"nothing but traps":       {"ttttt", 4},
		"fewer than matter":       {"tttt", -1},
		"half of them":            {".....ttttt", 9},
		"less than half":          {"......ttttt", -1},
		"less than half at first": {"......tttttt", 11},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var b breaker
			at := -1
			for i, c := range test.traps {
				if b.count(c == 't', start.Add(time.Duration(i)*time.Second)) > 0 {
					at = i
				}
			}
			if at != test.at {
				t.Errorf("it was suspended at %d, want %d", at, test.at)
			}
		})
	}
}

func TestAPluginIsSuspendedWhenItsTrapsCostTooMuch(t *testing.T) {
	var b breaker
	for i := range 1000 {
		trapped := i%10 == 0
		if b.count(trapped, time.Unix(1000, 0)) > 0 {
			if want := 10 * (manyTraps - 1); i != want {
				t.Errorf("it was suspended at %d, want %d", i, want)
			}
			return
		}
	}
	t.Error("it was not suspended")
}

func TestSuspensionsGrowAndAreForgotten(t *testing.T) {
	var b breaker
	now := time.Unix(1000, 0)
	trap := func() (d time.Duration) {
		for d == 0 {
			d = b.count(true, now)
		}
		return d
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		got := trap()
		if got != want*time.Second || b.suspended(now) != got {
			t.Errorf("suspended for %v, want %vs", got, want)
		}
		now = now.Add(got)
		if b.suspended(now) != 0 {
			t.Error("it is still suspended at the end")
		}
	}
	now = now.Add(calmAfter + time.Second)
	if got := trap(); got != minSuspend {
		t.Errorf("after a calm time it is suspended for %v", got)
	}
}

func TestTrapsInDifferentWindowsDoNotAddUp(t *testing.T) {
	var b breaker
	for i := range 100 {
		if b.count(true, time.Unix(int64(1000+20*i), 0)) > 0 {
			t.Fatal("3 traps a minute have it suspended")
		}
	}
}
