package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// beat records the distance of each attempt of a probe from the previous one.
type beat struct {
	mu       sync.Mutex
	last     time.Time
	attempts int
	period   time.Duration
	wrong    int // distances that differ from the period, except the first one
}

func (b *beat) Probe(context.Context, probe.Target) probe.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.attempts > 1 && now.Sub(b.last) != b.period {
		b.wrong++
	}
	b.last = now
	b.attempts++
	return probe.Result{Outcome: probe.Success}
}

func TestManyProbesKeepTheirOffsets(t *testing.T) {
	tier.NoRace(t)
	tier.Slow(t)
	probes := tier.Pick(20_000, 20_000, 100_000)
	const (
		period = 100 * time.Second
		rate   = 5000
	)
	bubble(t, engine.Config{StartRate: rate, Concurrency: 64}, func(t *testing.T, e *engine.Engine) {
		set, beats := probe.Set{}, make([]*beat, probes)
		for i := range beats {
			beats[i] = &beat{period: period}
			id := probe.ID{Target: fmt.Sprintf("shop/%d", i), Kind: probe.Readiness}
			set[id] = probe.Probe{Handler: beats[i], Rule: probe.Rule{Period: period}}
		}
		apply(t, e, set)
		for id := range set {
			e.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
		}
		pass(0)
		if idle := runtime.NumGoroutine(); idle > 10 {
			t.Errorf("%d goroutines while nothing is in flight", idle)
		}
		pass(time.Second)
		checkPace(t, e, rate)
		pass(3*period + period/2 - time.Second)
		checkBeats(t, beats)
		if st := e.Stats(); st.Overrun+st.Late != 0 {
			t.Errorf("%d attempts were overrun and %d late", st.Overrun, st.Late)
		}
	})
}

// checkPace checks that the first attempts in the first second follow the rate and its burst, except for the few whose regular
// time was earlier.
func checkPace(t *testing.T, e *engine.Engine, rate int) {
	t.Helper()
	made := 0
	for _, a := range e.Stats().Attempts {
		made += int(a.Durations.Count())
	}
	if most := rate + rate/20 + 1000 + 100; made < rate || made > most {
		t.Errorf("%d attempts in the first second, want from %d to %d", made, rate, most)
	}
}

func checkBeats(t *testing.T, beats []*beat) {
	t.Helper()
	for i, b := range beats {
		if b.wrong > 0 || b.attempts < 3 || b.attempts > 5 {
			t.Fatalf("probe %d: %d attempts, %d of them not a period after the one before", i, b.attempts, b.wrong)
		}
	}
}

func TestProbesAreSpreadEvenlyOverTheirPeriod(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	const probes, buckets = 20_000, 20
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		set := probe.Set{}
		h := says(probe.Success)
		for i := range probes {
			set[probe.ID{Target: fmt.Sprintf("shop/%d", i), Kind: probe.Liveness}] = with(h)
		}
		apply(t, e, set)
		for id := range set {
			e.Report(probe.Instance{Target: id.Target, ID: "static", Phase: probe.Running, Since: time.Now()})
		}
		pass(30 * time.Second) // first attempts have been made
		var spread [buckets]int
		for st := range e.All() {
			spread[(st.Next.UnixNano()%int64(probe.DefaultPeriod))*buckets/int64(probe.DefaultPeriod)]++
		}
		for i, n := range spread {
			if n < probes/buckets*8/10 || n > probes/buckets*12/10 {
				t.Errorf("part %d of the period has %d probes, want about %d", i, n, probes/buckets)
			}
		}
	})
}
