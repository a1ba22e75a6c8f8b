package wasmhost_test

import (
	"context"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/wasmhost"
)

// TestHostilePluginsDoNotChangeVerdictsOfOtherProbes probes one target in ten with a
// plugin that never returns, in one way or another.
func TestHostilePluginsDoNotChangeVerdictsOfOtherProbes(t *testing.T) {
	const targets, enough = 100, 5
	server := serve(t, pong(0))
	makers := map[string]func() probe.Handler{
		"good":   handler(t, load(t, wasmhost.Config{Module: wat("%s", talk)}), nil).ForProbe,
		"spins":  handler(t, load(t, wasmhost.Config{Module: wat(`(func $run (result i32) ` + spin + ` i32.const 1)`)}), nil).ForProbe,
		"nested": handler(t, load(t, wasmhost.Config{Module: wat(`(func $run (result i32) call $run i32.const 1 i32.add)`)}), nil).ForProbe,
	}
	name := func(i int) string {
		switch i % 20 {
		case 0:
			return "spins"
		case 10:
			return "nested"
		}
		return "good"
	}
	set := probe.Set{}
	for i := range targets {
		target, timeout := server, time.Second
		target.Name = strconv.Itoa(i)
		if name(i) == "good" {
			timeout = plenty // they share the processors with what never ends
		}
		set[probe.ID{Target: target.Name, Kind: probe.Readiness}] = probe.Probe{
			Rule:   probe.Rule{Period: 200 * time.Millisecond, Timeout: timeout, FailureThreshold: 1},
			Target: target, Handler: makers[name(i)](), HandlerName: name(i),
		}
	}
	e := engine.New(engine.Config{})
	stop := run(t, e, set)
	defer stop()
	good := func(s engine.Status) bool { return s.HandlerName == "good" }
	testsync.Until(t, "attempts by the good plugin", func() bool { return fewest(e, good) >= enough })
	for s := range e.All() {
		switch {
		case good(s) && (s.Verdict != probe.Passing || s.Attempts[probe.Failure]+s.Attempts[probe.Unknown] > 0):
			t.Errorf("%v is %v: %+v", s.ID, s.Verdict, s.Result)
		case !good(s) && s.Verdict == probe.Passing:
			t.Errorf("%v by the plugin %q is passing", s.ID, s.HandlerName)
		}
	}
	t.Logf("attempts began at most %v late", latest(t, e.Stats().Lateness))
}

// TestAPluginWithHangingTargetsDoesNotStarveOtherProbes has so many hanging targets that
// most attempts of the plugin would wait for an instance until their deadline.
func TestAPluginWithHangingTargetsDoesNotStarveOtherProbes(t *testing.T) {
	const hanging, atOnce, enough = 500, 32, 10
	server := serve(t, mute)
	plugin := load(t, wasmhost.Config{Module: wat("%s", talk), Limits: wasmhost.Limits{Instances: 4}})
	base, set := handler(t, plugin, nil), probe.Set{}
	for i := range hanging {
		target := server
		target.Name = strconv.Itoa(i)
		set[probe.ID{Target: target.Name, Kind: probe.Readiness}] = probe.Probe{
			Rule: probe.Rule{Period: time.Second, Timeout: time.Second}, Target: target, Handler: base.ForProbe(), HandlerName: "hangs",
		}
	}
	other := make(chan time.Time, enough)
	set[probe.ID{Target: "other", Kind: probe.Readiness}] = probe.Probe{
		Rule: probe.Rule{Period: 100 * time.Millisecond}, HandlerName: "other",
		Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			select {
			case other <- time.Now():
			default:
			}
			return probe.Succeed("")
		}),
	}
	defer run(t, engine.New(engine.Config{Concurrency: atOnce}), set)()
	began := time.Now()
	for range enough {
		<-other
	}
	took := time.Since(began)
	t.Logf("%d attempts of another probe took %v, and %d of the plugin's were refused at once", enough, took, plugin.Stats().Errors[wasmhost.ReasonBusy])
	if took > plenty {
		t.Error("another probe was starved")
	}
}

// fewest returns the least number of successes that one of some probes has had.
func fewest(e *engine.Engine, some func(engine.Status) bool) uint64 {
	least := uint64(math.MaxUint64)
	for s := range e.All() {
		if some(s) {
			least = min(least, s.Attempts[probe.Success])
		}
	}
	return least
}

// run applies probes and starts the engine.
func run(tb testing.TB, e *engine.Engine, set probe.Set) (stop func()) {
	tb.Helper()
	if _, err := e.Apply(set); err != nil {
		tb.Fatal(err)
	}
	for id := range set {
		e.Report(probe.Instance{Target: id.Target, ID: "a", Phase: probe.Running, Since: time.Now()})
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	}
}

// latest returns a bound of the greatest duration of a histogram, which must have one.
func latest(t *testing.T, h engine.Histogram) (most time.Duration) {
	t.Helper()
	for i, n := range h.Counts {
		switch {
		case n > 0 && i == len(h.Bounds):
			t.Errorf("%d attempts began more than %v late", n, h.Bounds[i-1])
		case n > 0:
			most = h.Bounds[i]
		}
	}
	return most
}
