package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// grouped is a group of all targets of a fleet in one of its engines.
type grouped struct {
	*member
	group *group.Group
}

// inGroup makes a group of all targets in an engine.
func inGroup(m *member) *grouped {
	m.Helper()
	all := group.New(group.Config{Engine: m.fleet.Union()})
	if err := all.Apply(map[string]group.Rule{"all": {SlowStart: time.Minute}}); err != nil {
		m.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = all.Run(ctx) })
	m.Cleanup(func() { cancel(); running.Wait() })
	return &grouped{m, all.Get("all")}
}

// weights returns the members with their weights, such as "shop/web-0=100 shop/web-1=0", and whether gateways should
// wait.
func (g *grouped) weights() string {
	v := g.group.View()
	var all []string
	for m := range v.Members() {
		all = append(all, fmt.Sprintf("%s=%d", m.Target, m.Weight))
	}
	return fmt.Sprintf("frozen %v: %s", v.Frozen, strings.Join(all, " "))
}

// checkWeights checks that the groups have the same members with the same weights: 0 for sick ones.
func checkWeights(t *testing.T, when string, w *world, all ...*grouped) {
	t.Helper()
	for _, g := range all {
		v := g.group.View()
		for m := range v.Members() {
			if want := 100; w.isSick(m.Target) == (m.Weight == want) {
				t.Errorf("%s: %s has %s with the weight %d, %v", when, g.co.Name(), m.Target, m.Weight, m.State)
			}
		}
		if n := v.Total(); n != many {
			t.Errorf("%s: %s has %d members", when, g.co.Name(), n)
		}
		if got, want := g.weights(), all[0].weights(); got != want {
			t.Errorf("%s: %s has the members\n%s\nbut %s has\n%s", when, g.co.Name(), got, all[0].co.Name(), want)
		}
	}
}

// unchanged reports each View in which a member is not ready, until end is called.
func (g *grouped) unchanged() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		for v := g.group.View(); ; {
			next, err := g.group.Next(ctx, v.Version)
			if err != nil {
				return
			}
			for m := range next.Members() {
				if m.State != probe.GatewayReady || m.Weight != 100 {
					g.Errorf("%s shows %s as %v with the weight %d", g.co.Name(), m.Target, m.State, m.Weight)
				}
			}
			if v = next; v.Total() != many || v.Frozen {
				g.Errorf("%s shows %d members, frozen %v", g.co.Name(), v.Total(), v.Frozen)
			}
		}
	})
	return func() { cancel(); watching.Wait() }
}

// A target drains in all engines while its owner terminates its instance.
func TestATargetDrainsInAllEngines(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := inGroup(start(t, "one", b, w.targets(many))), inGroup(start(t, "two", b, w.targets(many)))
		time.Sleep(2 * time.Minute)
		const target = "shop/web-0"
		w.infect(target, 20*time.Second)
		time.Sleep(10 * time.Second)
		for _, g := range []*grouped{one, two} {
			if m := g.group.View().Member(target); m.State != probe.GatewayDraining || m.Weight != 0 {
				t.Errorf("%s has it as %v with the weight %d", g.co.Name(), m.State, m.Weight)
			}
		}
		time.Sleep(2 * time.Minute)
		checkWeights(t, "after the restart", w, one, two)
	})
}

// A warning changes no verdict, but how gateways treat a target.
func TestATargetThatWarnsIsDegradedInAllEngines(t *testing.T) {
	tier.Long(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		warns := atomic.Bool{}
		targets := w.targets(many)
		for id, p := range targets.Probes {
			handler := p.Handler
			p.Handler = probe.HandlerFunc(func(ctx context.Context, to probe.Target) probe.Result {
				if warns.Load() && strings.HasSuffix(id.Target, "0") {
					return probe.Warn("http.redirect", "to %v", time.Now()) // each attempt has a different detail
				}
				return handler.Probe(ctx, to)
			})
			targets.Probes[id] = p
		}
		one := start(t, "one", b, targets)
		both := []*grouped{inGroup(one), inGroup(start(t, "two", b, targets))}
		expect := func(when string, want probe.GatewayState) {
			t.Helper()
			time.Sleep(time.Minute)
			for _, g := range both {
				for m := range g.group.View().Members() {
					if state := m.State; (state == want) != strings.HasSuffix(m.Target, "0") && want != probe.GatewayReady || want == probe.GatewayReady && state != want {
						t.Errorf("%s: %s has %s as %v", when, g.co.Name(), m.Target, state)
					}
				}
			}
		}
		expect("at first", probe.GatewayReady)
		warns.Store(true)
		expect("while they warn", probe.GatewayDegraded)
		before := one.backend.writes.Load()
		time.Sleep(time.Hour)
		if n := one.backend.writes.Load() - before; n > 0 {
			t.Errorf("what warns goes on to be stored: %d requests", n)
		}
		for st := range one.fleet.Others().All() {
			if isWarning := st.Result.Reason == "http.redirect"; isWarning != strings.HasSuffix(st.ID.Target, "0") {
				t.Errorf("another engine shows %v with %v", st.ID, st.Result)
			}
		}
		warns.Store(false)
		expect("when they are well again", probe.GatewayReady)
	})
}

// The next owner attempts the probes half a minute later, and until then does not detect that they warn.
func TestATargetThatWarnsStaysDegradedWhenItMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := w.targets(many)
		for id, p := range targets.Probes {
			p.Rule.Period = 30 * time.Second
			p.Handler = probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Warn("http.redirect", "") })
			targets.Probes[id] = p
		}
		one, two := inGroup(start(t, "one", b, targets)), start(t, "two", b, targets)
		time.Sleep(3 * time.Minute)
		two.kill()
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			for m := range one.group.View().Members() {
				if m.State != probe.GatewayDegraded {
					t.Fatalf("%s is %v", m.Target, m.State)
				}
			}
		}
		if n := one.probes(); n != len(targets.Probes) {
			t.Errorf("%d of %d probes have moved", n, len(targets.Probes))
		}
	})
}

func TestEachEngineHasTheSameGroups(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		var all []*grouped
		for _, name := range []string{"one", "two", "three"} {
			all = append(all, inGroup(start(t, name, b, w.targets(many))))
		}
		time.Sleep(2 * time.Minute)
		checkWeights(t, "after a start", w, all...)
		for i := 1; i < many; i += 2 { // without a driver: they stay sick
			w.infect(fmt.Sprintf("shop/web-%d", i), 0)
		}
		time.Sleep(10 * time.Second)
		checkWeights(t, "after failures", w, all...)
		for i := 1; i < many; i += 2 {
			w.heal(fmt.Sprintf("shop/web-%d", i))
		}
		time.Sleep(2 * time.Minute)
		checkWeights(t, "after recoveries", w, all...)

		for i := range all[:2] {
			defer all[i].unchanged()()
		}
		all[2].kill()
		time.Sleep(time.Minute)
		checkWeights(t, "after a kill", w, all[:2]...)
		four := inGroup(start(t, "four", b, w.targets(many)))
		time.Sleep(2 * time.Minute)
		checkWeights(t, "after a join", w, all[0], all[1], four)
		for _, g := range all[:2] {
			g.backend.isCut.Store(true)
		}
		four.backend.isCut.Store(true)
		time.Sleep(12 * coord.DefaultTTL)
		checkWeights(t, "while the store is away", w, all[0], all[1], four)
		for _, g := range all[:2] {
			g.backend.isCut.Store(false)
		}
		four.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		checkWeights(t, "when the store is back", w, all[0], all[1], four)
	})
}

// checkRotation checks that a target is in rotation in all engines, or in none.
func checkRotation(t *testing.T, when, target string, want bool, all ...*grouped) {
	t.Helper()
	for _, g := range all {
		if m := g.group.View().Member(target); m == nil || m.InRotation != want {
			t.Errorf("%s: %s has %s as %+v", when, g.co.Name(), target, m)
		}
	}
}

// Reports of gateways to the owner of a target take the target out of rotation in all engines, until an attempt
// succeeds.
func TestATargetIsEjectedInAllEngines(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets, isUnknown := w.targets(many), atomic.Bool{}
		for i := 1; i < many; i += 2 {
			id := probe.ID{Target: fmt.Sprintf("shop/web-%d", i), Kind: probe.Readiness}
			p := targets.Probes[id]
			p.Rule = probe.Rule{Period: 30 * time.Second, FailureThreshold: 5}
			p.Handler = probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
				if isUnknown.Load() {
					return probe.Result{Outcome: probe.Unknown}
				}
				return probe.Result{Outcome: probe.Success}
			})
			targets.Probes[id] = p
		}
		var all []*grouped
		for _, name := range []string{"one", "two", "three"} {
			all = append(all, inGroup(start(t, name, b, targets)))
		}
		time.Sleep(2 * time.Minute)
		target := all[1].anyOwned()
		checkRotation(t, "before", target, true, all...)
		isUnknown.Store(true)
		for range 5 {
			all[1].engine.Observe(probe.ID{Target: target, Kind: probe.Readiness}, probe.Observation{Outcome: probe.Failure, Reason: probe.ReasonTCPRefused, Detail: "connection refused"})
		}
		time.Sleep(2 * time.Second)
		checkRotation(t, "after failures", target, false, all...)
		for _, g := range all {
			st, _ := g.seen(target)
			if e := st.Ejection; !st.Ready || e == nil || e.Probe.Target != target || e.Reason != probe.ReasonTCPRefused || e.Detail != "connection refused" {
				t.Errorf("%s shows %+v, ejected by %+v", g.co.Name(), st, e)
			}
		}
		isUnknown.Store(false)
		time.Sleep(time.Minute)
		checkRotation(t, "after a success", target, true, all...)
		checkSeen(t, w, all[0].member, all[1].member, all[2].member)
	})
}

// A flapping target is damped in all engines, including the next owner, until its penalty has decayed. Nothing is stored
// while it decays.
func TestATargetIsDampedInAllEngines(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := w.targets(many)
		targets.Dampings = map[string]probe.Damping{}
		for target := range targets.Units {
			targets.Dampings[target] = probe.Damping{}
		}
		var all []*grouped
		for _, name := range []string{"one", "two", "three"} {
			all = append(all, inGroup(start(t, name, b, targets)))
		}
		time.Sleep(2 * time.Minute)
		target := all[2].anyOwned()
		for range 3 {
			w.infect(target, 0)
			time.Sleep(10 * time.Second)
			w.heal(target)
			time.Sleep(10 * time.Second)
		}
		began := time.Now()
		checkRotation(t, "after three flaps", target, false, all...)
		for _, g := range all {
			if st, _ := g.seen(target); st.State != probe.StateDamped || !st.Ready || st.Damping == nil || st.Damping.Until.Sub(began) < 25*time.Minute {
				t.Errorf("%s shows %v, with the damping %+v", g.co.Name(), st.State, st.Damping)
			}
		}
		writes := func() (n int64) {
			for _, g := range all {
				n += g.backend.writes.Load()
			}
			return n
		}
		before := writes()
		time.Sleep(5 * time.Minute)
		if n := writes() - before; n > 0 {
			t.Errorf("while the penalty decays, %d requests were made that write", n)
		}
		all[2].kill()
		for range 15 {
			time.Sleep(time.Minute)
			checkRotation(t, fmt.Sprintf("%v later", time.Since(began)), target, false, all[:2]...)
		}
		time.Sleep(15 * time.Minute)
		checkRotation(t, "when it has decayed", target, true, all[:2]...)
		checkWeights(t, "in the end", w, all[:2]...)
	})
}
