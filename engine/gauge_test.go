package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestGatewayStateFollowsInstanceAndReadinessProbes(t *testing.T) {
	other := named(readiness, "other")
	ended := func(in *probe.Instance) { in.Phase = probe.Ended }
	terminating := func(in *probe.Instance) { in.Terminating = true }
	for name, c := range map[string]struct {
		probes answers
		in     func(*probe.Instance)
		want   probe.GatewayState
	}{
		"nothing is known":                {answers{readiness: probe.Unknown}, nil, probe.GatewayUndecided},
		"passes":                          {answers{readiness: probe.Success}, nil, probe.GatewayReady},
		"fails":                           {answers{readiness: probe.Failure}, nil, probe.GatewayDown},
		"warns":                           {answers{readiness: probe.Warning}, nil, probe.GatewayDegraded},
		"one of two warns":                {answers{readiness: probe.Success, other: probe.Warning}, nil, probe.GatewayDegraded},
		"one of two fails":                {answers{readiness: probe.Success, other: probe.Failure}, nil, probe.GatewayDown},
		"one warns and one fails":         {answers{readiness: probe.Warning, other: probe.Failure}, nil, probe.GatewayDown},
		"liveness does not matter":        {answers{readiness: probe.Success, liveness: probe.Warning}, nil, probe.GatewayReady},
		"terminates":                      {answers{readiness: probe.Success}, terminating, probe.GatewayDraining},
		"terminates and fails":            {answers{readiness: probe.Failure}, terminating, probe.GatewayDraining},
		"is being restarted":              {answers{readiness: probe.Success}, func(in *probe.Instance) { in.Managed, in.Reason = true, probe.ReasonEnding }, probe.GatewayDraining},
		"has not been restarted in time":  {answers{readiness: probe.Success}, func(in *probe.Instance) { in.Managed, in.Reason = false, probe.ReasonEnding }, probe.GatewayReady},
		"has ended":                       {answers{readiness: probe.Success}, ended, probe.GatewayDown},
		"has ended as it was asked":       {answers{readiness: probe.Success}, func(in *probe.Instance) { ended(in); terminating(in) }, probe.GatewayDown},
		"no probes: ready once it runs":   {nil, func(*probe.Instance) {}, probe.GatewayReady},
		"no probes, and terminates":       {nil, terminating, probe.GatewayDraining},
		"not started yet":                 {answers{startup: probe.Unknown, readiness: probe.Success}, nil, probe.GatewayUndecided},
		"startup fails":                   {answers{startup: probe.Failure, readiness: probe.Success}, nil, probe.GatewayDown},
		"startup that warns has no say":   {answers{startup: probe.Warning, readiness: probe.Success}, nil, probe.GatewayReady},
		"only liveness: ready as it runs": {answers{liveness: probe.Success}, nil, probe.GatewayReady},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				set := probe.Set{}
				for id, o := range c.probes {
					set[id] = with(says(o))
				}
				apply(t, e, set)
				e.Report(instance("a"))
				pass(5 * time.Minute)
				if c.in != nil {
					in := instance("a")
					c.in(&in)
					e.Report(in)
					synctest.Wait()
				}
				st, _ := e.Target("web")
				if st.Gateway != c.want || st.Gateway.TakesRequests() != (c.want == probe.GatewayReady || c.want == probe.GatewayDegraded) {
					t.Errorf("got %v, want %v: %+v", st.Gateway, c.want, st)
				}
				checkGauge(t, e, "web", nil)
			})
		})
	}
}

// A failure below the threshold does not end warnings; neither does an attempt that could not be made, or a single success.
func TestWarningsEndAfterAsManySuccessesAsFailuresWouldDecide(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Warning)
		p := with(h)
		p.Rule = probe.Rule{Period: time.Second, FailureThreshold: 5}
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		changes := e.SubscribeTargets()
		defer changes.Close()
		pass(10 * time.Second)
		for _, c := range []struct {
			outcome probe.Outcome
			times   int
			want    probe.GatewayState
		}{
			{probe.Failure, 4, probe.GatewayDegraded}, {probe.Unknown, 4, probe.GatewayDegraded}, {probe.Success, 4, probe.GatewayDegraded},
			{probe.Warning, 1, probe.GatewayDegraded}, {probe.Success, 5, probe.GatewayReady}, {probe.Failure, 4, probe.GatewayReady},
			{probe.Warning, 4, probe.GatewayReady}, {probe.Warning, 1, probe.GatewayDegraded},
		} {
			h.say(c.outcome)
			pass(time.Duration(c.times) * time.Second)
			known := polled{}
			known.poll(changes)
			st, _ := e.Target("web")
			if st.Gateway != c.want {
				t.Errorf("after %v: %v, want %v", c.outcome, st.Gateway, c.want)
			}
			if told, ok := known["web"]; ok && told.Gateway != c.want {
				t.Errorf("after %v subscribers were told %v", c.outcome, told.Gateway)
			}
		}
	})
}

// checkGauge compares a target's gauge with its status, and returns the gauge. If the target does not exist, it returns nil, and
// checks that its previous gauge is zero.
func checkGauge(t *testing.T, e *engine.Engine, target string, before *engine.TargetGauge) *engine.TargetGauge {
	t.Helper()
	st, exists := e.Target(target)
	g, ok := e.WatchTarget(target)
	if exists != ok {
		t.Fatalf("Target says that %s exists: %v, and WatchTarget: %v", target, exists, ok)
	}
	if before != nil && before != g {
		if before.Gateway() != probe.GatewayUndecided || before.Ready() || before.Decided() || before.State() != probe.StateAbsent {
			t.Fatalf("the gauge of %s, which was removed, is %v, %v", target, before.Gateway(), before.State())
		}
	}
	if ok && (g.Gateway() != st.Gateway || g.State() != st.State || g.Ready() != st.Ready || g.Decided() != st.Decided) {
		t.Fatalf("gauge: %v, %v, ready %v, decided %v; status: %v, %v, ready %v, decided %v: %+v", g.Gateway(), g.State(), g.Ready(), g.Decided(),
			st.Gateway, st.State, st.Ready, st.Decided, st)
	}
	return g
}

// TestATargetsGaugeIsWhatTargetSays generates 5,000 random events per seed.
func TestATargetsGaugeIsWhatTargetSays(t *testing.T) {
	tier.NoRace(t)
	tier.Slow(t)
	for seed := range uint64(tier.Pick(4, 20, 20)) {
		bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
			r := rand.New(rand.NewPCG(seed, 1))
			handlers := make([]*script, 6)
			for i := range handlers {
				handlers[i] = says(probe.Outcome(r.IntN(4)))
			}
			gauges := map[string]*engine.TargetGauge{}
			seen := map[probe.GatewayState]bool{}
			for range 5000 {
				randomStep(t, e, r, handlers)
				synctest.Wait()
				for i := range handlers {
					name := fmt.Sprintf("t%d", i)
					gauges[name] = checkGauge(t, e, name, gauges[name])
					if g := gauges[name]; g != nil {
						seen[g.Gateway()] = true
					}
				}
			}
			if len(seen) != probe.GatewayStates {
				t.Errorf("seed %d has shown %v only", seed, seen)
			}
		})
	}
}
