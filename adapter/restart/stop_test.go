package restart_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/probe"
)

// states bring a unit into each state it can be in.
var states = map[string]struct {
	script script
	policy restart.Policy
	sick   bool
	budget restart.Budget
	after  time.Duration // the state is reached
	ends   time.Duration // from being told to leave
	gone   probe.Reason
}{
	"running":                {script: script{dying: 3 * s}, after: s, ends: 3 * s, gone: probe.ReasonEnded},
	"deaf":                   {script: script{deaf: true}, after: s, ends: -1},
	"being ended by a probe": {script: script{dying: 10 * s}, sick: true, after: 2 * s, ends: 5 * s},
	"waiting for its end":    {script: script{deaf: true}, sick: true, after: 70 * s, ends: -1},
	"waiting for the budget": {script: script{dying: s}, sick: true, budget: restart.Budget{Max: 1, Per: 10 * time.Hour}, after: 20 * s, ends: s},
	"back-off":               {script: script{lasts: s, code: 1}, after: 5 * s, gone: probe.ReasonExited},
	"not begun":              {script: script{err: errors.New("no such file")}, after: 5 * s, gone: probe.ReasonNoStart},
	"gone":                   {script: script{lasts: s}, policy: restart.Never, after: 5 * s},
}

func TestUnitEndsInEachState(t *testing.T) {
	leave := map[string]func(h *house){
		"removed": func(h *house) { h.apply(nil) },
		"stopped": func(h *house) { h.stop(); synctest.Wait() },
		"killed":  func(h *house) { h.control.Kill(); synctest.Wait() },
	}
	for how, leave := range leave {
		for name, c := range states {
			t.Run(how+" while "+name, func(t *testing.T) {
				inHouse(t, c.budget, func(h *house) {
					a := newActor("web", func(int) script { return c.script })
					h.probes(map[string]probe.Handler{"web": &health{bad: c.sick}})
					unit := restart.Unit{Driver: a, Policy: c.policy, TerminationGracePeriod: 5 * s}
					h.apply(map[string]restart.Unit{"web": unit})
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
					if in := h.instance("web"); in.Phase != probe.Gone {
						t.Errorf("got %+v\n%s", in, h.log)
					} else if c.gone != "" && (in.Reason != c.gone || strings.Contains(in.Detail, "begins")) {
						t.Errorf("got %+v, want it gone for %s", in, c.gone)
					}
					h.expectEnd(how != "removed")
				})
			})
		}
	}
}

func (h *house) expectLeaving() {
	h.Helper()
	if in := h.instance("web"); !in.Leaving || in.Phase != probe.Running {
		h.Fatalf("got %+v, want it leaving\n%s", in, h.log)
	}
}

// expectEnd says whether Run has ended; killed, it has in any case.
func (h *house) expectEnd(want bool) {
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

func TestUnitsEndSideBySide(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		units := map[string]restart.Unit{}
		for _, name := range []string{"a", "b", "c"} {
			units[name] = restart.Unit{Driver: newActor(name, func(int) script { return script{dying: 20 * s} })}
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

func TestReadinessGoesOnWhileAnInstanceLeaves(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) { // K158
		web, ready := new(health), probe.ID{Target: "web", Kind: probe.Readiness}
		rule := probe.Rule{Period: s, FailureThreshold: 1}
		if _, err := h.engine.Apply(probe.Set{ready: {Rule: rule, Handler: web}, liveness("web"): {Rule: rule, Handler: web}}); err != nil {
			t.Fatal(err)
		}
		a := newActor("web", func(int) script { return script{dying: 20 * s} })
		h.apply(only(a))
		h.sleep(2 * s)
		h.stop()
		web.turn(true)
		h.sleep(5 * s)
		if st, _ := h.engine.Status(ready); st.Verdict != probe.Failing {
			t.Errorf("readiness is %v", st.Verdict)
		}
		if st, _ := h.engine.Status(liveness("web")); st.Verdict != probe.Passing {
			t.Errorf("liveness is %v", st.Verdict)
		}
		h.expectTimes("asked to end within", a.asked(), 30*s)
	})
}

func TestChangedUnitEndsAndBeginsAgainWithoutBackOff(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		v1 := newActor("v1", func(int) script { return script{dying: 3 * s} })
		v2 := newActor("v2", healthy)
		h.apply(map[string]restart.Unit{"web": {Driver: v1, Revision: "1"}})
		h.sleep(s)
		h.apply(map[string]restart.Unit{"web": {Driver: v2, Revision: "2"}})
		if in := h.expect("web", "v1-0", probe.Running, ""); !in.Leaving {
			t.Errorf("got %+v", in)
		}
		h.sleep(4 * s)
		in := h.expect("web", "v2-0", probe.Running, "")
		if in.Leaving || in.Restarts != 0 {
			t.Errorf("got %+v", in)
		}
		h.expectTimes("v2 began at", v2.starts(), 4*s)
	})
}

func TestChangedUnitLeavesTheBackOff(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) { // K145
		v1 := newActor("v1", func(int) script { return script{lasts: s} })
		v2 := newActor("v2", healthy)
		h.apply(only(v1))
		h.sleep(5 * s)
		h.apply(only(v2))
		h.expect("web", "v2-0", probe.Running, "")
	})
}

func TestEqualRevisionKeepsTheInstanceAndAdjustsTheRest(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		web, a := new(health), newActor("web", func(int) script { return script{dying: time.Hour} })
		h.probes(map[string]probe.Handler{"web": web})
		h.apply(map[string]restart.Unit{"web": {Driver: a, Revision: "1"}})
		h.sleep(s)
		other := newActor("other", healthy)
		h.apply(map[string]restart.Unit{"web": {Driver: other, Revision: "1", TerminationGracePeriod: 7 * s}})
		h.expect("web", "web-0", probe.Running, "")
		web.turn(true)
		h.sleep(2 * s)
		h.expectTimes("asked to end within", a.asked(), 7*s)
		web.turn(false)
		h.sleep(8 * s)
		h.expect("web", "other-0", probe.Running, "")
	})
}

func TestUnitThatIsWantedAgainBeginsAgain(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		a := newActor("web", func(int) script { return script{dying: 3 * s} })
		h.apply(only(a))
		h.apply(nil)
		h.apply(only(a))
		h.sleep(4 * s)
		h.expect("web", "web-1", probe.Running, "")
	})
}

func TestExternalLifeIsLetGo(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		a := newActor("web", healthy)
		h.apply(only(foreign{a}))
		h.stop()
		synctest.Wait()
		if in := h.expect("web", "web-0", probe.Running, ""); in.Managed || in.Leaving {
			t.Errorf("got %+v, want it to go on unmanaged", in)
		}
		h.expectTimes("asked to end within", a.asked())
		h.expectEnd(true)
	})
}

func TestExternalLifeIsNotLetGoInTheMiddleOfARestart(t *testing.T) {
	inHouse(t, restart.Budget{}, func(h *house) {
		a := newActor("web", func(int) script { return script{dying: 8 * s} })
		h.probes(map[string]probe.Handler{"web": &health{bad: true}})
		h.apply(only(foreign{a}))
		h.sleep(2 * s)
		h.stop()
		began := time.Now()
		if err := <-h.ended; err != nil {
			t.Fatal(err)
		}
		h.ended <- nil
		if took := time.Since(began); took < 5*s || took > 8*s {
			t.Errorf("let go after %v", took)
		}
	})
}
