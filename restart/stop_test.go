package restart_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// states are the behaviors and probes that bring a unit into each state.
var states = map[string]struct {
	behavior behavior
	policy   restart.Policy
	failing  bool
	budget   restart.Budget
	after    time.Duration // time until the state is reached
	ends     time.Duration // time from its removal to its end
	gone     probe.Reason
}{
	"running":                {behavior: behavior{endsAfter: 3 * s}, after: s, ends: 3 * s, gone: probe.ReasonEnded},
	"ignoring the end":       {behavior: behavior{ignoresEnd: true}, after: s, ends: -1},
	"being ended by a probe": {behavior: behavior{endsAfter: 10 * s}, failing: true, after: 2 * s, ends: 5 * s},
	"waiting for its end":    {behavior: behavior{ignoresEnd: true}, failing: true, after: 70 * s, ends: -1},
	"waiting for the budget": {behavior: behavior{endsAfter: s}, failing: true, budget: restart.Budget{Max: 1, Per: 10 * time.Hour}, after: 20 * s, ends: s},
	"back-off":               {behavior: behavior{exitsAfter: s, code: 1}, after: 5 * s, gone: probe.ReasonExited},
	"failing to start":       {behavior: behavior{err: errors.New("no such file")}, after: 5 * s, gone: probe.ReasonNoStart},
	"gone":                   {behavior: behavior{exitsAfter: s}, policy: restart.Never, after: 5 * s},
}

// spend takes over a target that was just restarted, and returns its unit.
func (h *harness) spend() restart.Unit {
	h.Helper()
	u := restart.Unit{Driver: newDriver("spender", healthy), Revision: "1"}
	memory := restart.Memory{Revision: u.RevisionID(), Charged: time.Now()}
	if err := h.control.TakeOver(map[string]restart.Unit{"spender": u}, nil, map[string]restart.Memory{"spender": memory}); err != nil {
		h.Fatal(err)
	}
	return u
}

func TestRemovedUnitEndsInEachState(t *testing.T) {
	leave := map[string]func(h *harness){
		"removed": func(h *harness) { h.apply(nil) },
		"stopped": func(h *harness) { h.stop(); synctest.Wait() },
		"killed":  func(h *harness) { h.control.Kill(); synctest.Wait() },
	}
	for how, leave := range leave {
		for name, c := range states {
			t.Run(how+" while "+name, func(t *testing.T) {
				inBubble(t, c.budget, func(h *harness) {
					a := newDriver("web", func(int) behavior { return c.behavior })
					h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: c.failing}})
					unit := restart.Unit{Driver: a, Policy: c.policy, TerminationGracePeriod: 5 * s}
					units := map[string]restart.Unit{"web": unit}
					if c.budget.Max > 0 {
						units["spender"] = h.spend()
					}
					h.apply(units)
					h.sleep(c.after)
					leave(h)
					if how != "killed" && c.ends != 0 {
						h.expectLeaving()
					}
					switch {
					case how == "killed":
					case c.ends < 0:
						h.sleep(time.Hour)
						h.expectLeaving()
						h.control.Kill()
						synctest.Wait()
					default:
						h.sleep(c.ends)
					}
					want := c.gone
					if want == probe.ReasonEnded && how != "removed" {
						want = probe.ReasonShutdown
					}
					if in := h.instance("web"); in.Phase != probe.Gone {
						t.Errorf("got %+v\n%s", in, h.log)
					} else if want != "" && (in.Reason != want || strings.Contains(in.Detail, "restarting")) {
						t.Errorf("got %+v, want it gone for %s", in, want)
					}
					h.expectEnd(how != "removed")
				})
			})
		}
	}
}

func (h *harness) expectLeaving() {
	h.Helper()
	if in := h.instance("web"); !in.Terminating || in.Phase != probe.Running {
		h.Fatalf("got %+v, want it terminating\n%s", in, h.log)
	}
}

// expectEnd checks whether Run has returned; if want is false, only after Kill.
func (h *harness) expectEnd(want bool) {
	h.Helper()
	if !want {
		h.control.Kill()
		synctest.Wait()
	}
	select {
	case err := <-h.ended:
		if err != nil {
			h.Errorf("Run: %v", err)
		}
		h.ended <- nil
	default:
		h.Errorf("Run has not ended\n%s", h.log)
	}
}

// As in a reload, the probes are removed before the unit.
func TestRemovedInstanceThatHasNotStartedStaysSo(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		unstarted := func() bool {
			target, _ := h.engine.Target("web")
			return !target.Started && !target.Ready
		}
		startup := probe.ID{Target: "web", Kind: probe.Startup}
		failing := probe.Probe{Rule: probe.Rule{FailureThreshold: 1000}, Handler: &fakeHandler{failing: true}, HandlerName: "test"}
		if _, err := h.engine.Apply(probe.Set{startup: failing}); err != nil {
			t.Fatal(err)
		}
		a := newDriver("web", func(int) behavior { return behavior{endsAfter: 3 * s} })
		h.apply(map[string]restart.Unit{"web": {Driver: a}})
		h.sleep(time.Minute)
		if _, err := h.engine.Apply(nil); err != nil || !unstarted() {
			t.Fatal("the instance has started before its unit is removed", err)
		}
		h.apply(nil)
		h.expectLeaving()
		if !unstarted() {
			t.Error("the instance has started by being removed")
		}
		h.sleep(3 * s)
		h.expectEnd(false)
	})
}

// It is released at the end of the grace period of the restart in progress.
func TestRemovedExternalInstanceThatHasNotStartedStaysSo(t *testing.T) {
	for name, failures := range map[string]int32{"idle": 1000, "during a restart": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				startup := probe.ID{Target: "web", Kind: probe.Startup}
				failing := probe.Probe{Rule: probe.Rule{FailureThreshold: failures}, Handler: &fakeHandler{failing: true}, HandlerName: "test"}
				if _, err := h.engine.Apply(probe.Set{startup: failing}); err != nil {
					t.Fatal(err)
				}
				h.apply(only(external{newDriver("web", func(int) behavior { return behavior{endsAfter: time.Hour} })}))
				h.sleep(15 * s)
				if _, err := h.engine.Apply(nil); err != nil {
					t.Fatal(err)
				}
				h.apply(nil)
				for range 60 {
					if target, known := h.engine.Target("web"); known && (target.Started || target.Ready) {
						h.Errorf("the instance has started by being removed: %+v", target)
						break
					}
					h.sleep(s)
				}
				if target, known := h.engine.Target("web"); known {
					h.Errorf("it is still there: %+v", target)
				}
			})
		})
	}
}

func TestUnitsEndConcurrently(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		units := map[string]restart.Unit{}
		for _, name := range []string{"a", "b", "c"} {
			units[name] = restart.Unit{Driver: newDriver(name, func(int) behavior { return behavior{endsAfter: 20 * s} })}
		}
		h.apply(units)
		h.stop()
		began := time.Now()
		if err := <-h.ended; err != nil {
			t.Fatal(err)
		}
		h.ended <- nil
		if took := time.Since(began); took != 20*s {
			t.Errorf("took %v", took)
		}
	})
}

func TestReadinessIsProbedWhileAnInstanceLeaves(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) { // K158
		web, ready := new(fakeHandler), probe.ID{Target: "web", Kind: probe.Readiness}
		rule := probe.Rule{Period: s, FailureThreshold: 1}
		if _, err := h.engine.Apply(probe.Set{ready: {Rule: rule, Handler: web}, liveness("web"): {Rule: rule, Handler: web}}); err != nil {
			t.Fatal(err)
		}
		a := newDriver("web", func(int) behavior { return behavior{endsAfter: 20 * s} })
		h.apply(only(a))
		h.sleep(2 * s)
		h.stop()
		web.setFailing(true)
		h.sleep(5 * s)
		if st, _ := h.engine.Status(ready); st.Verdict != probe.Failing {
			t.Errorf("readiness is %v", st.Verdict)
		}
		if st, _ := h.engine.Status(liveness("web")); st.Verdict != probe.Passing {
			t.Errorf("liveness is %v", st.Verdict)
		}
		h.expectTimes("asked to end within", a.graces(), 30*s)
	})
}

func TestChangedUnitRestartsWithoutBackOff(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		v1 := newDriver("v1", func(int) behavior { return behavior{endsAfter: 3 * s} })
		v2 := newDriver("v2", healthy)
		h.apply(map[string]restart.Unit{"web": {Driver: v1, Revision: "1"}})
		h.sleep(s)
		h.apply(map[string]restart.Unit{"web": {Driver: v2, Revision: "2"}})
		if in := h.expect("web", "v1-0", probe.Running, ""); !in.Terminating {
			t.Errorf("got %+v", in)
		}
		h.sleep(4 * s)
		in := h.expect("web", "v2-0", probe.Running, "")
		if in.Terminating || in.Restarts != 0 {
			t.Errorf("got %+v", in)
		}
		h.expectTimes("v2 began at", v2.starts(), 4*s)
	})
}

func TestChangedUnitSkipsTheBackOff(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) { // K145
		v1 := newDriver("v1", func(int) behavior { return behavior{exitsAfter: s} })
		v2 := newDriver("v2", healthy)
		h.apply(only(v1))
		h.sleep(5 * s)
		h.apply(only(v2))
		h.expect("web", "v2-0", probe.Running, "")
	})
}

func TestEqualRevisionKeepsTheInstanceAndUpdatesTheRest(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		web, a := new(fakeHandler), newDriver("web", func(int) behavior { return behavior{endsAfter: time.Hour} })
		h.probes(map[string]probe.Handler{"web": web})
		h.apply(map[string]restart.Unit{"web": {Driver: a, Revision: "1"}})
		h.sleep(s)
		other := newDriver("other", healthy)
		h.apply(map[string]restart.Unit{"web": {Driver: other, Revision: "1", TerminationGracePeriod: 7 * s}})
		h.expect("web", "web-0", probe.Running, "")
		web.setFailing(true)
		h.sleep(2 * s)
		h.expectTimes("asked to end within", a.graces(), 7*s)
		web.setFailing(false)
		h.sleep(8 * s)
		h.expect("web", "other-0", probe.Running, "")
	})
}

func TestUnitAddedAgainStartsAgain(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", func(int) behavior { return behavior{endsAfter: 3 * s} })
		h.apply(only(a))
		h.apply(nil)
		h.apply(only(a))
		h.sleep(4 * s)
		h.expect("web", "web-1", probe.Running, "")
	})
}

func TestExternalInstanceIsReleased(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		a := newDriver("web", healthy)
		h.apply(only(external{a}))
		h.stop()
		synctest.Wait()
		if in := h.expect("web", "web-0", probe.Running, ""); in.Managed || in.Terminating {
			t.Errorf("got %+v, want it to go on unmanaged", in)
		}
		h.expectTimes("asked to end within", a.graces())
		h.expectEnd(true)
	})
}

func TestExternalInstanceIsNotReleasedDuringARestart(t *testing.T) {
	for name, begin := range map[string]func(h *harness){
		"a probe fails": func(h *harness) { h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}}) },
		"an operator has asked for it": func(h *harness) {
			h.sleep(s)
			h.operate(h.control.Restart, "web")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				a := newDriver("web", func(int) behavior { return behavior{endsAfter: 8 * s} })
				h.apply(only(external{a}))
				begin(h)
				h.sleep(2 * s)
				h.stop()
				began := time.Now()
				if err := <-h.ended; err != nil {
					t.Fatal(err)
				}
				h.ended <- nil
				if took := time.Since(began); took < 5*s || took > 8*s {
					t.Errorf("released after %v", took)
				}
			})
		})
	}
}

// late is an External driver whose instances begin after they are released.
type late struct{ external }

func (late) Run(ctx context.Context, began func(restart.Begun), _ <-chan time.Duration) restart.Exit {
	<-ctx.Done()
	began(restart.Begun{ID: "web-0"})
	time.Sleep(time.Minute)
	return restart.Exit{}
}

func TestRemovedExternalInstanceThatBeginsLateIsNotReported(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
		h.apply(only(late{}))
		h.probes(nil)
		h.apply(nil)
		h.sleep(30 * s)
		if target, known := h.engine.Target("web"); known && (target.Started || target.Ready) {
			t.Errorf("the instance has started by being removed: %+v", target)
		}
		h.sleep(time.Minute)
		if target, known := h.engine.Target("web"); known {
			t.Errorf("it is still there: %+v", target)
		}
	})
}
