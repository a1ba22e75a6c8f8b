package wasmhost_test

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
)

// TestHostilePluginsDoNotChangeVerdictsOfOtherProbes probes one target in ten with plugins that
// never return, each in a different way.
func TestHostilePluginsDoNotChangeVerdictsOfOtherProbes(t *testing.T) {
	tier.Slow(t)
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
			timeout = plenty // they share the processors with calls that never return
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
	late := e.Stats().Lateness
	t.Logf("attempts began late, by %v: %v", late.Bounds, late.Counts)
	if n := late.Counts[len(late.Bounds)]; n > 0 && tier.IsLong() {
		t.Errorf("%d attempts began later than the last bound", n)
	}
}

// TestAPluginWithHangingTargetsDoesNotStarveOtherProbes has so many hanging targets that most
// attempts of the plugin would wait for an instance. A waiting attempt occupies a goroutine of the
// engine for half of its timeout, so the number of refusals must exceed the number of attempts that
// could have waited.
func TestAPluginWithHangingTargetsDoesNotStarveOtherProbes(t *testing.T) {
	tier.Slow(t)
	const hanging, atOnce, enough, timeout = 500, 32, 10, time.Second
	server := serve(t, mute)
	plugin := load(t, wasmhost.Config{Module: wat("%s", talk), Limits: wasmhost.Limits{Instances: 4}})
	base, set := handler(t, plugin, nil), probe.Set{}
	for i := range hanging {
		target := server
		target.Name = strconv.Itoa(i)
		set[probe.ID{Target: target.Name, Kind: probe.Readiness}] = probe.Probe{
			Rule: probe.Rule{Period: timeout, Timeout: timeout}, Target: target, Handler: base.ForProbe(), HandlerName: "hangs",
		}
	}
	var others atomic.Int64
	set[probe.ID{Target: "other", Kind: probe.Readiness}] = probe.Probe{
		Rule: probe.Rule{Period: 100 * time.Millisecond}, HandlerName: "other",
		Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			others.Add(1)
			return probe.Succeed("")
		}),
	}
	began := time.Now()
	defer run(t, engine.New(engine.Config{Concurrency: atOnce}), set)()
	testsync.Until(t, "attempts of another probe", func() bool { return others.Load() >= enough })
	t.Logf("%d attempts of another probe took %v", enough, time.Since(began))
	refused := func() uint64 { return plugin.Stats().Errors[wasmhost.ReasonBusy] }
	testsync.Until(t, "refusals at once", func() bool {
		halves := 1 + time.Since(began)/(timeout/2)
		return refused() > uint64(atOnce*halves)
	})
	t.Logf("%d of the plugin's attempts were refused in %v", refused(), time.Since(began))
}

// TestHealthyTargetsAreAttemptedBesideHangingOnes probes 100 healthy targets and 500 hanging ones (2,000
// in make long), which accept connections and never respond, with one plugin. It runs with memory for an
// instance per target, and with so little memory that the hanging targets would use it up. Once each
// healthy target has been attempted, attempts at hanging targets last longer than the test: a healthy
// attempt that waited for them would not be made.
func TestHealthyTargetsAreAttemptedBesideHangingOnes(t *testing.T) {
	tier.Slow(t)
	const healthy = 100
	brief, endless := probe.Rule{Period: 4 * time.Second, Timeout: time.Second}, probe.Rule{Period: 500 * time.Millisecond, Timeout: 10 * time.Minute}
	hanging, enough := tier.Pick(500, 500, 2000), tier.Pick[uint64](3, 3, 8)
	for name, memory := range map[string]int64{"much memory": wasmhost.DefaultTotalMemory, "little memory": int64(hanging) << 14} {
		t.Run(name, func(t *testing.T) {
			wasmhost.SetTotalMemory(memory)
			defer wasmhost.SetTotalMemory(wasmhost.DefaultTotalMemory)
			silent, answering := serve(t, mute), serve(t, pong(0))
			plugin := load(t, wasmhost.Config{Module: wat("%s", talk)})
			base, set := handler(t, plugin, nil), probe.Set{}
			for i := range hanging + healthy {
				p := probe.Probe{Rule: brief, Target: silent, Handler: base, HandlerName: "hangs"}
				if i%(hanging/healthy+1) == 0 {
					p.Rule = probe.Rule{Period: 500 * time.Millisecond, Timeout: plenty}
					p.Target, p.HandlerName = answering, "answers"
				}
				p.Target.Name = strconv.Itoa(i)
				set[probe.ID{Target: p.Target.Name, Kind: probe.Readiness}] = p
			}
			e := engine.New(engine.Config{Concurrency: 2 * (hanging + healthy)})
			stop := run(t, e, set)
			defer stop()
			answers := func(s engine.Status) bool { return s.HandlerName == "answers" }
			testsync.Until(t, "the first attempt at each healthy target", func() bool { return fewest(e, answers) >= 1 })
			for id, p := range set {
				if p.HandlerName == "hangs" {
					p.Rule = endless
					set[id] = p
				}
			}
			if _, err := e.Apply(set); err != nil {
				t.Fatal(err)
			}
			testsync.Until(t, "attempts at all hanging targets", func() bool {
				for s := range e.All() {
					if !answers(s) && !s.Attempting {
						return false
					}
				}
				return true
			})
			had := fewest(e, answers)
			allBefore, failedBefore := made(e, answers)
			testsync.Until(t, "attempts at the healthy targets", func() bool { return fewest(e, answers) >= had+enough })
			all, failed := made(e, answers)
			if all, failed = all-allBefore, failed-failedBefore; failed*100 > all {
				t.Errorf("%d of %d attempts at healthy targets were not made: %v", failed, all, plugin.Stats().Errors)
			}
			t.Logf("%d of %d attempts were not made, and %d before, with %d instances", failed, all, failedBefore, plugin.Stats().Instances)
		})
	}
}

// made returns the numbers of all attempts and of unsuccessful ones of the probes that some
// selects.
func made(e *engine.Engine, some func(engine.Status) bool) (all, failed uint64) {
	for s := range e.All() {
		if some(s) {
			failed += s.Attempts[probe.Unknown] + s.Attempts[probe.Failure]
			all += s.Attempts[probe.Success]
		}
	}
	return all + failed, failed
}

// fewest returns the smallest number of successes among the probes that some selects.
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
