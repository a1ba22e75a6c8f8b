package restart_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

func TestFailingLivenessRestartsTheInstance(t *testing.T) {
	for _, policy := range []restart.Policy{restart.Always, restart.OnFailure} { // K136
		t.Run(policy.String(), func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				web, a := new(fakeHandler), newDriver("web", func(int) behavior { return behavior{endsAfter: 3 * s} })
				h.probes(map[string]probe.Handler{"web": web})
				h.apply(map[string]restart.Unit{"web": {Driver: a, Policy: policy}})
				h.sleep(5 * s)
				web.setFailing(true)
				h.sleep(2 * s)
				h.expect("web", "web-0", probe.Running, probe.ReasonEnding)
				web.setFailing(false)
				h.sleep(10 * s)
				in := h.expect("web", "web-1", probe.Running, "")
				if in.Restarts != 1 || in.Detail != "liveness failed (test.failing), killed by SIGTERM (exit status 143): bye" {
					t.Errorf("got %+v", in)
				}
				h.expectTimes("asked to end within", a.graces(), 30*s)
			})
		})
	}
}

func TestFailingProbeUnderPolicyNeverEndsTheTarget(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}})
		h.apply(map[string]restart.Unit{"web": {Driver: newDriver("web", healthy), Policy: restart.Never}})
		h.sleep(2 * s)
		h.expect("web", "web-0", probe.Gone, probe.ReasonEnded)
	})
}

func TestProbeGracePeriodOverridesTheUnits(t *testing.T) {
	for name, c := range map[string]struct{ own, units, want time.Duration }{ // K139
		"the probe's, shorter": {2 * s, 5 * s, 2 * s},
		"the probe's, longer":  {60 * s, 5 * s, 60 * s},
		"the unit's":           {0, 5 * s, 5 * s},
		"the default":          {0, 0, 30 * s},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				rule := probe.Rule{Period: s, FailureThreshold: 1, TerminationGracePeriod: c.own}
				if _, err := h.engine.Apply(probe.Set{liveness("web"): {Rule: rule, Handler: &fakeHandler{failing: true}}}); err != nil {
					t.Fatal(err)
				}
				a := newDriver("web", func(int) behavior { return behavior{endsAfter: time.Hour} })
				h.apply(map[string]restart.Unit{"web": {Driver: a, TerminationGracePeriod: c.units}})
				h.sleep(s)
				h.expectTimes("asked to end within", a.graces(), c.want)
			})
		})
	}
}

func TestFailingStartupRestartsAndReadinessDoesNot(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) { // K135, K137
		boot, rule := new(fakeHandler), probe.Rule{Period: s, FailureThreshold: 1}
		failing := &fakeHandler{failing: true}
		_, err := h.engine.Apply(probe.Set{
			{Target: "web", Kind: probe.Startup}:   {Rule: rule, Handler: failing},
			{Target: "web", Kind: probe.Readiness}: {Rule: rule, Handler: failing},
			{Target: "db", Kind: probe.Startup}:    {Rule: rule, Handler: boot},
			{Target: "db", Kind: probe.Readiness}:  {Rule: rule, Handler: failing},
		})
		if err != nil {
			t.Fatal(err)
		}
		web, db := newDriver("web", healthy), newDriver("db", healthy)
		h.apply(map[string]restart.Unit{"web": {Driver: web}, "db": {Driver: db}})
		h.sleep(5 * s)
		h.expectTimes("web asked to end within", web.graces(), 30*s, 30*s)
		h.expectTimes("db asked to end within", db.graces())
	})
}

func TestALivenessProbeThatOnlyWarnsRestartsNothing(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		rule := probe.Rule{Period: s, FailureThreshold: 1, Effect: probe.EffectWarn}
		if _, err := h.engine.Apply(probe.Set{liveness("web"): {Rule: rule, Handler: &fakeHandler{failing: true}}}); err != nil {
			t.Fatal(err)
		}
		web := newDriver("web", healthy)
		h.apply(only(web))
		h.sleep(60 * s)
		h.expectTimes("web asked to end within", web.graces())
		if st, _ := h.engine.Target("web"); st.State != probe.StateDegraded {
			t.Errorf("web is %v", st.State)
		}
	})
}

func TestRestartsByProbesBackOffLikeCrashes(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) { // unlike K148
		a := newDriver("web", healthy)
		if _, err := h.engine.Apply(probe.Set{liveness("web"): {Rule: probe.Rule{InitialDelay: s, Period: s, FailureThreshold: 1}, Handler: &fakeHandler{failing: true}}}); err != nil {
			t.Fatal(err)
		}
		h.apply(only(a))
		h.sleep(80 * s)
		h.expectTimes("began at", a.starts(), 0, 1*s, 12*s, 33*s, 74*s)
	})
}

func TestBudgetSpreadsRestarts(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: time.Minute}, func(h *harness) {
		handlers, units, drivers := map[string]probe.Handler{}, map[string]restart.Unit{}, map[string]*fakeDriver{}
		for _, name := range []string{"a", "b", "c"} {
			failing := &fakeHandler{failing: true}
			drivers[name] = newDriver(name, func(n int) behavior {
				if n > 0 {
					failing.setFailing(false)
				}
				return behavior{}
			})
			handlers[name], units[name] = failing, restart.Unit{Driver: drivers[name]}
		}
		h.probes(handlers)
		h.apply(units)
		for minute := range 3 {
			h.sleep(30 * s)
			restarts, waiting := 0, 0
			for name, a := range drivers {
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

func TestRecoveryWhileWaitingForTheBudgetCancelsTheRestart(t *testing.T) {
	inBubble(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *harness) {
		a, web := newDriver("a", healthy), new(fakeHandler)
		b := newDriver("b", healthy)
		h.probes(map[string]probe.Handler{"a": &fakeHandler{failing: true}, "b": web})
		h.apply(map[string]restart.Unit{"a": {Driver: a}, "b": {Driver: b}})
		h.sleep(2 * s)
		web.setFailing(true)
		h.sleep(10 * s)
		if in := h.expect("b", "b-0", probe.Running, probe.ReasonBudget); in.Managed {
			t.Errorf("got %+v", in)
		}
		web.setFailing(false)
		h.sleep(2 * s)
		if in := h.expect("b", "b-0", probe.Running, ""); !in.Managed {
			t.Errorf("got %+v", in)
		}
		h.sleep(2 * time.Hour)
		h.expect("b", "b-0", probe.Running, "")
		h.expectTimes("asked to end within", b.graces())
	})
}

func TestInstanceThatDoesNotEndIsAskedAgainWithBackOff(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		web, a := &fakeHandler{failing: true}, newDriver("web", func(int) behavior { return behavior{ignoresEnd: true} })
		h.probes(map[string]probe.Handler{"web": web})
		h.apply(only(a))
		h.sleep(40 * s) // 30 s of grace, 5 s to die, then 10 s of back-off
		if in := h.expect("web", "web-0", probe.Running, probe.ReasonEnding); in.Managed {
			t.Errorf("got %+v, want its probe to go on", in)
		}
		h.expectTimes("asked to end within", a.graces(), 30*s)
		h.sleep(10 * s)
		h.expectTimes("asked to end within", a.graces(), 30*s, 30*s)
		h.sleep(49 * s) // 35 s, then 20 s of back-off
		h.expectTimes("asked to end within", a.graces(), 30*s, 30*s)
		h.sleep(2 * s)
		h.expectTimes("asked to end within", a.graces(), 30*s, 30*s, 30*s)
	})
}

func TestInstanceThatDidNotEndMayRecover(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		web, a := &fakeHandler{failing: true}, newDriver("web", func(int) behavior { return behavior{ignoresEnd: true} })
		h.probes(map[string]probe.Handler{"web": web})
		h.apply(only(a))
		h.sleep(36 * s)
		web.setFailing(false)
		h.sleep(2 * s)
		if in := h.expect("web", "web-0", probe.Running, ""); !in.Managed {
			t.Errorf("got %+v", in)
		}
		h.sleep(time.Hour)
		h.expectTimes("asked to end within", a.graces(), 30*s)
	})
}

func TestExternalInstanceStartsAtOnceAndItsEndsBackOff(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", healthy)
		h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}})
		h.apply(only(external{a}))
		h.sleep(5 * s) // the first two ended at 0; the third must wait until 10
		if in := h.expect("web", "web-2", probe.Running, probe.ReasonBackOff); in.Managed {
			t.Errorf("got %+v, want its probe to go on", in)
		}
		h.sleep(100 * s)
		h.expectTimes("began at", a.starts(), 0, 0, 0, 10*s, 30*s, 70*s)
	})
}

func TestExternalInstanceUnderPolicyNeverIsNotEnded(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", healthy)
		h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}})
		h.apply(map[string]restart.Unit{"web": {Driver: external{a}, Policy: restart.Never}})
		h.sleep(time.Hour)
		if in := h.expect("web", "web-0", probe.Running, ""); in.Managed {
			t.Errorf("got %+v", in)
		}
	})
}

// staller is a handler whose steps take time and so stall the loop of the engine.
type staller struct{ takes atomic.Int64 }

func (*staller) Probe(context.Context, probe.Target) probe.Result { return probe.Succeed("") }

func (s *staller) Step(a *nonblock.Attempt) nonblock.Progress {
	time.Sleep(time.Duration(s.takes.Load()))
	a.Result = probe.Succeed("")
	return nonblock.StepDone
}

// failDegraded makes the target web fail in an engine that is degraded by the handler of its other probe, which
// continues to stall it.
func (h *harness) failDegraded(web *fakeHandler) (*fakeDriver, *staller) {
	h.Helper()
	stalls, d := new(staller), newDriver("web", healthy)
	h.probes(map[string]probe.Handler{"web": web, "other": stalls})
	h.apply(map[string]restart.Unit{"web": {Driver: d}, "other": {}})
	h.sleep(5 * s)
	stalls.takes.Store(int64(900 * time.Millisecond)) // per second
	h.sleep(10 * s)
	web.setFailing(true)
	return d, stalls
}

// Other processes that keep the processors busy degrade the engine for as long as they run.
func TestADegradedEngineRestartsWhatAnswersOrFailsForLong(t *testing.T) {
	for _, test := range []struct {
		name    string
		result  probe.Result
		restart time.Duration // at the latest
	}{
		{"a connection is refused", probe.Fail(probe.ReasonTCPRefused, ""), 3 * s},
		{"a status", probe.Fail(probe.ReasonHTTPStatus, ""), 3 * s},
		{"a command exits", probe.Fail(probe.ReasonExecExit, ""), 3 * s},
		{"a plugin is answered", probe.Result{Outcome: probe.Failure, Reason: "redis.down", Timings: probe.Timings{FirstByte: 1}}, 3 * s},
		{"a command hangs", probe.Fail(probe.ReasonExecTimeout, ""), 5*time.Minute + 3*s},
		{"no answer comes", probe.Fail(probe.ReasonTCPTimeout, ""), 5*time.Minute + 3*s},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				d, _ := h.failDegraded(&fakeHandler{result: test.result})
				if test.restart > time.Minute {
					h.sleep(5 * time.Minute)
					if len(d.graces()) > 0 {
						t.Errorf("restarted within five minutes\n%s", h.log)
					}
					h.sleep(test.restart - 5*time.Minute)
				} else {
					h.sleep(test.restart)
				}
				if !h.engine.Health().Degraded() {
					t.Fatalf("the engine is well: %+v", h.engine.Health())
				}
				if len(d.graces()) == 0 {
					t.Errorf("not restarted\n%s", h.log)
				}
			})
		})
	}
}

func TestADegradedEngineRestartsNothing(t *testing.T) {
	for name, recovers := range map[string]bool{"the probe recovers": true, "the probe goes on failing": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				web := new(fakeHandler)
				d, stalls := h.failDegraded(web)
				h.sleep(20 * s)
				h.expect("web", "web-0", probe.Running, probe.ReasonDegraded)
				if status, _ := h.engine.Status(liveness("web")); status.Verdict != probe.Failing || status.OnHold {
					t.Errorf("got %+v", status)
				}

				web.setFailing(!recovers)
				stalls.takes.Store(0)
				h.sleep(20 * s)
				if got, want := len(d.graces()) > 0, !recovers; got != want {
					t.Errorf("restarted: %v, want %v\n%s", got, want, h.log)
				}
			})
		})
	}
}

func TestProbesOfAFinishedInstanceKnowThatItIsFinished(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := newDriver("a", func(int) behavior { return behavior{exitsAfter: time.Second} })
		h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
		h.apply(map[string]restart.Unit{"web": {Driver: d, Policy: restart.Never}})
		h.sleep(time.Minute)
		h.expect("web", "a-0", probe.Gone, probe.ReasonCompleted)
		h.probes(nil)
		h.apply(map[string]restart.Unit{"web": {Driver: d, Policy: restart.Never}})
		h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
		h.apply(map[string]restart.Unit{"web": {Driver: d, Policy: restart.Never}})
		h.expect("web", "a-0", probe.Gone, probe.ReasonCompleted)
	})
}

// link is a handler whose targets respond, unless the engine is cut off from them or from the name servers, or one of
// them falls silent.
type link struct {
	cut, noNames atomic.Bool
	silent       atomic.Pointer[string] // an address
}

func (l *link) Probe(ctx context.Context, t probe.Target) probe.Result {
	silent, isName := l.silent.Load(), strings.HasSuffix(t.Address, ".test")
	switch {
	case isName && l.noNames.Load():
		<-ctx.Done()
		return probe.Fail(probe.ReasonDNSTimeout, "i/o timeout")
	case l.cut.Load(), silent != nil && *silent == t.Address:
		<-ctx.Done()
		return probe.Fail(probe.ReasonTCPTimeout, "i/o timeout")
	}
	res := probe.Result{Outcome: probe.Success, Timings: probe.Timings{Connect: time.Millisecond}}
	if isName {
		res.Timings.Resolve = time.Millisecond
	}
	return res
}

// linked runs f with an engine that restarts, within the budget, targets with the given addresses. It probes them once
// a second: the first one with web, the others with a link.
func linked(t *testing.T, b restart.Budget, address func(n int) string, f func(h *harness, l *link, web *fakeHandler, drivers []*fakeDriver)) {
	inBubble(t, b, func(h *harness) {
		l, web := new(link), new(fakeHandler)
		set, units, drivers := probe.Set{}, map[string]restart.Unit{}, []*fakeDriver(nil)
		for n := range 20 {
			target := fmt.Sprint("t", n)
			drivers = append(drivers, newDriver(target, healthy))
			p := probe.Probe{Rule: probe.Rule{Period: s, FailureThreshold: 1}, Target: probe.Target{Address: address(n)}, Handler: l, HandlerName: "test"}
			if n == 0 {
				p.Handler = web
			}
			set[liveness(target)] = p
			units[target] = restart.Unit{Driver: drivers[n]}
		}
		if _, err := h.engine.Apply(set); err != nil {
			t.Fatal(err)
		}
		h.apply(units)
		h.sleep(5 * s)
		f(h, l, web, drivers)
	})
}

func literal(n int) string { return fmt.Sprint("2001:db8::", n+1) }

func TestAnIsolatedEngineRestartsTargetsThatAnswer(t *testing.T) {
	linked(t, restart.Budget{}, literal, func(h *harness, l *link, web *fakeHandler, drivers []*fakeDriver) {
		l.cut.Store(true)
		h.sleep(10 * s)
		if !h.engine.Health().Isolated {
			t.Fatal("the engine is not isolated")
		}
		web.setFailing(true)
		h.sleep(2 * s)
		if len(drivers[0].graces()) == 0 {
			t.Error("the target that answers is not restarted")
		}
		for n, d := range drivers[1:] {
			if len(d.graces()) > 0 {
				t.Errorf("t%d is restarted", n+1)
			}
		}
	})
}

// silence makes t1 fall silent after t0 has used up the budget of a minute, and returns when the budget permits a
// restart again.
func silence(h *harness, l *link, web *fakeHandler, meanwhile func()) {
	web.setFailing(true)
	h.sleep(s)
	web.setFailing(false)
	silent := literal(1)
	l.silent.Store(&silent)
	h.sleep(3 * s)
	h.expect("t1", "t1-0", probe.Running, probe.ReasonBudget)
	meanwhile()
	h.sleep(time.Minute)
}

func TestAnIsolatedEngineDoesNotRestartSilentTargets(t *testing.T) {
	linked(t, restart.Budget{Max: 1, Per: time.Minute}, literal, func(h *harness, l *link, web *fakeHandler, drivers []*fakeDriver) {
		silence(h, l, web, func() { l.cut.Store(true) })
		h.expect("t1", "t1-0", probe.Running, probe.ReasonDegraded)
		l.cut.Store(false)
		h.sleep(5 * s)
		if len(drivers[1].graces()) == 0 {
			t.Error("nothing was restarted after the isolation")
		}
	})
}

func TestADeadNameServerDelaysNoRestartOfAnAddress(t *testing.T) {
	address := func(n int) string {
		if n < 3 {
			return literal(n)
		}
		return fmt.Sprintf("h%d.test", n)
	}
	linked(t, restart.Budget{Max: 1, Per: time.Minute}, address, func(h *harness, l *link, web *fakeHandler, drivers []*fakeDriver) {
		silence(h, l, web, func() { l.noNames.Store(true) })
		if got := h.engine.Health(); !got.NamesIsolated || got.Isolated || got.Err() != nil {
			t.Errorf("got %+v", got)
		}
		if len(drivers[1].graces()) == 0 {
			t.Error("t1 is not restarted")
		}
	})
}
