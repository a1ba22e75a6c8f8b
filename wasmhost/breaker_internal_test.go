package wasmhost

import (
	"testing"
	"time"
)

var start = time.Unix(1000, 0)

func TestAProbeThatMostlyTrapsIsSuspended(t *testing.T) {
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
			var b breaker
			var p probeTraps
			at := -1
			for i, c := range test.attempts {
				plugin, probe := b.count(&p, c == 't', start.Add(time.Duration(i)*time.Second))
				if plugin > 0 {
					t.Fatal("one probe suspends the plugin")
				}
				if probe > 0 {
					at = i
				}
			}
			if at != test.want {
				t.Errorf("suspended at %d, want %d", at, test.want)
			}
		})
	}
}

func TestAProbeWithTooManyTrapsIsSuspended(t *testing.T) {
	var b breaker
	var p probeTraps
	for i := range 1000 {
		if _, d := b.count(&p, i%10 == 0, start); d > 0 {
			if want := 10 * (maxTraps - 1); i != want {
				t.Errorf("suspended at %d, want %d", i, want)
			}
			return
		}
	}
	t.Error("not suspended")
}

// One bad target among many must not suspend the plugin, however often it is attempted.
func TestOnlyAShareOfTheProbesSuspendsThePlugin(t *testing.T) {
	const probes = 100
	for name, test := range map[string]struct {
		bad  int
		want bool
	}{"one": {1, false}, "a tenth": {10, false}, "a half": {50, true}, "all": {100, true}} {
		t.Run(name, func(t *testing.T) {
			var b breaker
			all := make([]probeTraps, probes)
			suspended := false
			for round := range 30 {
				for i := range all {
					now := start.Add(time.Duration(round) * 10 * time.Second)
					bad := i >= probes-test.bad
					if _, left := b.remaining(&all[i], now); left > 0 {
						continue
					}
					if plugin, _ := b.count(&all[i], bad, now); plugin > 0 {
						suspended = true
					}
				}
			}
			if _, plugin, _ := b.suspensions(start); suspended != test.want || (plugin > 0) != test.want {
				t.Errorf("suspended: %v, %d times", suspended, plugin)
			}
		})
	}
}

func TestFewProbesDoNotSuspendThePlugin(t *testing.T) {
	var b breaker
	var all [minProbes - 1]probeTraps
	for range 2 * minTraps {
		for i := range all {
			if plugin, _ := b.count(&all[i], true, start); plugin > 0 {
				t.Fatal("suspended")
			}
		}
	}
	if _, _, probes := b.suspensions(start); probes != 2*uint64(len(all)) {
		t.Errorf("%d suspensions of probes", probes)
	}
}

func TestFailedStartsSuspendThePlugin(t *testing.T) {
	var b breaker
	for i := range 3 * maxFailedStarts {
		if b.countStart(i%maxFailedStarts != 0, start) > 0 {
			t.Fatal("suspended though starts succeed in between")
		}
	}
	b.countStart(false, start)
	for i := range maxFailedStarts {
		if got := b.countStart(true, start) > 0; got != (i == maxFailedStarts-1) {
			t.Errorf("start %d: suspended: %v", i, got)
		}
	}
}

func TestSuspensionsGrowAndAreForgotten(t *testing.T) {
	var b breaker
	var p probeTraps
	now := start
	trapUntilSuspended := func() (d time.Duration) {
		for d == 0 {
			_, d = b.count(&p, true, now)
		}
		return d
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		got := trapUntilSuspended()
		if _, left := b.remaining(&p, now); got != want*time.Second || left != got {
			t.Errorf("suspended for %v, want %vs", got, want)
		}
		now = now.Add(got)
		if _, left := b.remaining(&p, now); left != 0 {
			t.Error("still suspended at the end")
		}
	}
	if _, _, got := b.suspensions(now); got != 7 {
		t.Errorf("%d suspensions", got)
	}
	now = now.Add(backOffLifetime + time.Second)
	if got := trapUntilSuspended(); got != minSuspension {
		t.Errorf("after a time without traps: suspended for %v", got)
	}
}

func TestTrapsInDifferentWindowsDoNotAddUp(t *testing.T) {
	var b breaker
	var p probeTraps
	for i := range 1000 {
		trapped := i%20 < minTraps-1 || i >= 900 && i%20 < minAttempts
		if _, d := b.count(&p, trapped, start.Add(time.Duration(3*i)*time.Second)); d > 0 {
			if i < 900 {
				t.Fatalf("%d of 20 traps suspend the probe", minTraps-1)
			}
			return
		}
	}
	t.Error("a probe that mostly traps, but did not before, is not suspended")
}

// A probe that mostly traps is suspended even if it is rarely attempted, and so is the plugin if
// many probes trap.
func TestProbesWithLongPeriodsAreSuspended(t *testing.T) {
	for _, period := range []time.Duration{15 * time.Second, time.Minute, time.Hour} {
		var b breaker
		var p probeTraps
		for i := range minTraps {
			if _, d := b.count(&p, true, start.Add(time.Duration(i)*period)); (d > 0) != (i == minTraps-1) {
				t.Errorf("each %v, trap %d: suspended: %v", period, i+1, d > 0)
			}
		}
		var all [minProbes]probeTraps
		b.remove(&p)
		for i := range all {
			if d, _ := b.count(&all[i], true, start.Add(time.Duration(i)*period)); (d > 0) != (i == minProbes-1) {
				t.Errorf("each %v, probe %d: the plugin is suspended: %v", period, i+1, d > 0)
			}
		}
	}
}

// Probes with long periods make no attempt in most windows, but count as probes of the plugin.
func TestProbesWithLongPeriodsCount(t *testing.T) {
	var b breaker
	var frequent [minProbes]probeTraps
	rare := make([]probeTraps, 100)
	for i := range rare {
		b.count(&rare[i], false, start)
	}
	for at := start; at.Before(start.Add(20 * time.Minute)); at = at.Add(10 * time.Second) {
		for i := range frequent {
			if plugin, _ := b.count(&frequent[i], true, at); plugin > 0 {
				t.Fatalf("%d of %d probes suspend the plugin", len(frequent), len(frequent)+len(rare))
			}
		}
	}
	for i := range rare[:96] {
		b.remove(&rare[i])
		b.remove(&rare[i])
	}
	later, suspended := start.Add(time.Hour), false
	for i := range frequent {
		plugin, _ := b.count(&frequent[i], true, later)
		suspended = suspended || plugin > 0
	}
	if !suspended {
		t.Error("5 of 9 probes do not suspend the plugin")
	}
}
