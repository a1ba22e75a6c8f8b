package restart_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/probe"
)

func TestFailingLivenessEndsTheInstanceAndAnotherBegins(t *testing.T) {
	for _, policy := range []restart.Policy{restart.Always, restart.OnFailure} { // K136
		t.Run(policy.String(), func(t *testing.T) {
			inHouse(t, restart.Budget{}, func(h *house) {
				web, a := new(health), newActor("web", func(int) script { return script{dying: 3 * s} })
				h.probes(map[string]probe.Handler{"web": web})
				h.apply(map[string]restart.Unit{"web": {Driver: a, Policy: policy}})
				h.sleep(5 * s)
				web.turn(true)
				h.sleep(2 * s)
				h.expect("web", "web-0", probe.Running, probe.ReasonEnding)
				web.turn(false)
				h.sleep(10 * s)
				in := h.expect("web", "web-1", probe.Running, "")
				if in.Restarts != 1 || in.Detail != "exit status 143: bye" {
					t.Errorf("got %+v", in)
				}
				h.expectTimes("asked to end within", a.asked(), 30*s)
			})
		})
	}
}

func TestFailingProbeUnderPolicyNeverEndsTheTarget(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		h.probes(map[string]probe.Handler{"web": &health{bad: true}})
		h.apply(map[string]restart.Unit{"web": {Driver: newActor("web", healthy), Policy: restart.Never}})
		h.sleep(2 * s)
		h.expect("web", "web-0", probe.Gone, probe.ReasonEnded)
	})
}

func TestGracePeriodIsTheProbesOwn(t *testing.T) {
	for name, c := range map[string]struct{ own, units, want time.Duration }{ // K139
		"the probe's, shorter": {2 * s, 5 * s, 2 * s},
		"the probe's, longer":  {60 * s, 5 * s, 60 * s},
		"the unit's":           {0, 5 * s, 5 * s},
		"the default":          {0, 0, 30 * s},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, restart.Budget{}, func(h *house) {
				rule := probe.Rule{Period: s, FailureThreshold: 1, TerminationGracePeriod: c.own}
				if _, err := h.engine.Apply(probe.Set{liveness("web"): {Rule: rule, Handler: &health{bad: true}}}); err != nil {
					t.Fatal(err)
				}
				a := newActor("web", func(int) script { return script{dying: time.Hour} })
				h.apply(map[string]restart.Unit{"web": {Driver: a, TerminationGracePeriod: c.units}})
				h.sleep(s)
				h.expectTimes("asked to end within", a.asked(), c.want)
			})
		})
	}
}

func TestFailingStartupEndsTheInstanceAndReadinessDoesNot(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) { // K135, K137
		boot, rule := new(health), probe.Rule{Period: s, FailureThreshold: 1}
		sick := &health{bad: true}
		_, err := h.engine.Apply(probe.Set{
			{Target: "web", Kind: probe.Startup}:   {Rule: rule, Handler: sick},
			{Target: "web", Kind: probe.Readiness}: {Rule: rule, Handler: sick},
			{Target: "db", Kind: probe.Startup}:    {Rule: rule, Handler: boot},
			{Target: "db", Kind: probe.Readiness}:  {Rule: rule, Handler: sick},
		})
		if err != nil {
			t.Fatal(err)
		}
		web, db := newActor("web", healthy), newActor("db", healthy)
		h.apply(map[string]restart.Unit{"web": {Driver: web}, "db": {Driver: db}})
		h.sleep(5 * s)
		h.expectTimes("web asked to end within", web.asked(), 30*s, 30*s)
		h.expectTimes("db asked to end within", db.asked())
	})
}

func TestProbeKillsWaitLikeCrashes(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) { // K148, mended
		a := newActor("web", healthy)
		if _, err := h.engine.Apply(probe.Set{liveness("web"): {Rule: probe.Rule{InitialDelay: s, FailureThreshold: 1}, Handler: &health{bad: true}}}); err != nil {
			t.Fatal(err)
		}
		h.apply(only(a))
		h.sleep(80 * s)
		h.expectTimes("began at", a.starts(), 0, 1*s, 12*s, 33*s, 74*s)
	})
}

func TestBudgetLetsOneFailAfterTheOther(t *testing.T) {
	inHouse(t, restart.Budget{Max: 1, Per: time.Minute}, func(h *house) {
		handlers, units, actors := map[string]probe.Handler{}, map[string]restart.Unit{}, map[string]*actor{}
		for _, name := range []string{"a", "b", "c"} {
			sick := &health{bad: true}
			actors[name] = newActor(name, func(n int) script {
				if n > 0 {
					sick.turn(false)
				}
				return script{}
			})
			handlers[name], units[name] = sick, restart.Unit{Driver: actors[name]}
		}
		h.probes(handlers)
		h.apply(units)
		for minute := range 3 {
			h.sleep(30 * s)
			restarts, waiting := 0, 0
			for name, a := range actors {
				restarts += len(a.starts()) - 1
				if in := h.instance(name); in.Reason == probe.ReasonBudget {
					waiting++
					if in.Managed || in.Phase != probe.Running {
						t.Errorf("got %+v, want it to run unmanaged", in)
					}
				}
			}
			if restarts != minute+1 || waiting != 2-minute {
				t.Errorf("after minute %d: %d restarts and %d waiting\n%s", minute, restarts, waiting, h.log)
			}
			h.sleep(30 * s)
		}
	})
}

func TestRecoveryWhileWaitingForTheBudgetEndsNothing(t *testing.T) {
	inHouse(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *house) {
		a, web := newActor("a", healthy), new(health)
		b := newActor("b", healthy)
		h.probes(map[string]probe.Handler{"a": &health{bad: true}, "b": web})
		h.apply(map[string]restart.Unit{"a": {Driver: a}, "b": {Driver: b}})
		h.sleep(2 * s)
		web.turn(true)
		h.sleep(10 * s)
		if in := h.expect("b", "b-0", probe.Running, probe.ReasonBudget); in.Managed {
			t.Errorf("got %+v", in)
		}
		web.turn(false)
		h.sleep(2 * s)
		if in := h.expect("b", "b-0", probe.Running, ""); !in.Managed {
			t.Errorf("got %+v", in)
		}
		h.sleep(2 * time.Hour)
		h.expect("b", "b-0", probe.Running, "")
		h.expectTimes("asked to end within", b.asked())
	})
}

func TestLifeThatDoesNotEndIsAskedAgainLaterAndLater(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		web, a := &health{bad: true}, newActor("web", func(int) script { return script{deaf: true} })
		h.probes(map[string]probe.Handler{"web": web})
		h.apply(only(a))
		h.sleep(40 * s) // 30 s of grace, 5 s to die, then 10 s of back-off
		if in := h.expect("web", "web-0", probe.Running, probe.ReasonEnding); in.Managed {
			t.Errorf("got %+v, want its probe to go on", in)
		}
		h.expectTimes("asked to end within", a.asked(), 30*s)
		h.sleep(10 * s)
		h.expectTimes("asked to end within", a.asked(), 30*s, 30*s)
		h.sleep(49 * s) // 35 s, then 20 s of back-off
		h.expectTimes("asked to end within", a.asked(), 30*s, 30*s)
		h.sleep(2 * s)
		h.expectTimes("asked to end within", a.asked(), 30*s, 30*s, 30*s)
	})
}

func TestLifeThatDidNotEndMayRecover(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		web, a := &health{bad: true}, newActor("web", func(int) script { return script{deaf: true} })
		h.probes(map[string]probe.Handler{"web": web})
		h.apply(only(a))
		h.sleep(36 * s)
		web.turn(false)
		h.sleep(2 * s)
		if in := h.expect("web", "web-0", probe.Running, ""); !in.Managed {
			t.Errorf("got %+v", in)
		}
		h.sleep(time.Hour)
		h.expectTimes("asked to end within", a.asked(), 30*s)
	})
}

func TestExternalLifeBeginsAtOnceAndItsEndsWait(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		a := newActor("web", healthy)
		h.probes(map[string]probe.Handler{"web": &health{bad: true}})
		h.apply(only(foreign{a}))
		h.sleep(5 * s) // ended at 0 and at 0; the third life must wait until 10
		if in := h.expect("web", "web-2", probe.Running, probe.ReasonBackOff); in.Managed {
			t.Errorf("got %+v, want its probe to go on", in)
		}
		h.sleep(100 * s)
		h.expectTimes("began at", a.starts(), 0, 0, 0, 10*s, 30*s, 70*s)
	})
}

func TestExternalLifeUnderPolicyNeverIsNotEnded(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		a := newActor("web", healthy)
		h.probes(map[string]probe.Handler{"web": &health{bad: true}})
		h.apply(map[string]restart.Unit{"web": {Driver: foreign{a}, Policy: restart.Never}})
		h.sleep(time.Hour)
		if in := h.expect("web", "web-0", probe.Running, ""); in.Managed {
			t.Errorf("got %+v", in)
		}
	})
}
