package restart_test

import (
	"context"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/followtest"
)

// A target that fails because its dependency is in trouble is not restarted: its probes continue, and it recovers with
// the dependency, or is restarted then.
func TestATargetIsNotRestartedWhileItsDependencyIsInTrouble(t *testing.T) {
	for name, recovers := range map[string]bool{"the probe recovers": true, "the probe goes on failing": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				db, web, d := &fakeHandler{failing: true}, new(fakeHandler), newDriver("web", healthy)
				h.probes(map[string]probe.Handler{"db": db, "web": web})
				h.apply(map[string]restart.Unit{"web": {Driver: d}, "db": {}})
				if _, err := h.engine.Change(engine.Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
					t.Fatal(err)
				}
				h.sleep(5 * s)
				web.setFailing(true)
				h.sleep(60 * s)
				h.expect("web", "web-0", probe.Running, probe.ReasonDependency)
				if st, _ := h.engine.Target("web"); st.State != probe.StateUnreachable || st.TroubledDependency != "db" || len(d.graces()) > 0 {
					t.Errorf("the state is %v, because of %q, and the instance was terminated %d times", st.State, st.TroubledDependency, len(d.graces()))
				}
				h.expectText(h.log.String(), "delay_reason=restart.dependency")

				web.setFailing(!recovers)
				h.sleep(2 * s)
				db.setFailing(false)
				h.sleep(20 * s)
				if got, want := len(d.graces()) > 0, !recovers; got != want {
					t.Errorf("restarted: %v, want %v\n%s", got, want, h.log)
				}
				if recovers {
					h.expect("web", "web-0", probe.Running, "")
				}
			})
		})
	}
}

// A planned stop of a target is not an outage of the targets that depend on it.
func TestATargetIsNotRestartedWhileItsDependencyIsStopped(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		web, d, on := new(fakeHandler), newDriver("web", healthy), newDriver("db", healthy)
		h.probes(map[string]probe.Handler{"db": new(fakeHandler), "web": web})
		h.apply(map[string]restart.Unit{"web": {Driver: d}, "db": {Driver: on}})
		if _, err := h.engine.Change(engine.Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
			t.Fatal(err)
		}
		h.sleep(5 * s)
		h.operate(h.control.Stop, "db")
		web.setFailing(true)
		h.sleep(60 * s)
		h.expect("web", "web-0", probe.Running, probe.ReasonDependency)
		if st, _ := h.engine.Target("web"); st.State != probe.StateUnreachable || len(d.graces()) > 0 {
			t.Errorf("the state is %v, and the instance was terminated %d times", st.State, len(d.graces()))
		}
	})
}

// slowly gives db a liveness probe that takes three failures in 30 seconds to fail, and web one that
// fails at once.
func (h *harness) slowly(db, web probe.Handler) {
	h.Helper()
	_, err := h.engine.Apply(probe.Set{
		liveness("db"):  {Rule: probe.Rule{Period: 10 * time.Second, FailureThreshold: 3}, Handler: db, HandlerName: "test"},
		liveness("web"): {Rule: probe.Rule{Period: time.Second, FailureThreshold: 1}, Handler: web, HandlerName: "test"},
	})
	if err != nil {
		h.Fatal(err)
	}
}

// A target often fails before its dependency is found failing, so the dependency is probed first.
func TestATargetIsNotRestartedBeforeItsDependencyIsFoundFailing(t *testing.T) {
	for name, c := range map[string]struct {
		fails, recovers bool // whether the dependency fails with the target, and recovers a little later
		restarts        bool
	}{
		"it fails too":          {fails: true},
		"it fails for a moment": {fails: true, recovers: true, restarts: true},
		"it does not fail":      {restarts: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				db, web, d := new(fakeHandler), new(fakeHandler), newDriver("web", healthy)
				h.slowly(db, web)
				h.apply(map[string]restart.Unit{"web": {Driver: d}, "db": {}})
				if _, err := h.engine.Change(engine.Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
					t.Fatal(err)
				}
				h.sleep(45 * s)
				db.setFailing(c.fails)
				web.setFailing(true)
				h.sleep(4 * s)
				if c.fails && len(d.graces()) > 0 {
					t.Fatalf("web was restarted after %v, before db was found failing\n%s", d.graces(), h.log)
				}
				db.setFailing(c.fails && !c.recovers)
				h.sleep(60 * s)
				if got := len(d.graces()) > 0; got != c.restarts {
					t.Errorf("restarted: %v, want %v\n%s", got, c.restarts, h.log)
				}
				if !c.restarts {
					h.expect("web", "web-0", probe.Running, probe.ReasonDependency)
				}
			})
		})
	}
}

// A dependency that another engine probes cannot be triggered: a restart waits as long as that engine may take to
// detect a failure.
func TestARestartWaitsForADependencyOfAnotherEngine(t *testing.T) {
	for name, fails := range map[string]bool{"it fails too": true, "it does not fail": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				web, d, db := new(fakeHandler), newDriver("web", healthy), liveness("db")
				others := followtest.New(t, probe.Rule{Period: 10 * time.Second, FailureThreshold: 3}, db)
				defer others.Follow(h.engine, 20*s)()
				h.probes(map[string]probe.Handler{"web": web})
				h.apply(map[string]restart.Unit{"web": {Driver: d}})
				if _, err := h.engine.Change(engine.Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
					t.Fatal(err)
				}
				h.sleep(5 * s)
				web.setFailing(true)
				h.sleep(48 * s) // 31 s until the failure is detected, and as long until this engine may know it
				h.expect("web", "web-0", probe.Running, probe.ReasonDependency)
				if fails {
					others.Say(db, probe.Failing)
				}
				h.sleep(30 * s)
				if got := len(d.graces()) > 0; got == fails {
					t.Fatalf("restarted: %v\n%s", got, h.log)
				}
				others.Say(db, probe.Passing)
				h.sleep(60 * s)
				if len(d.graces()) == 0 {
					t.Errorf("web was not restarted when db was well\n%s", h.log)
				}
			})
		})
	}
}

// The engine takes over a dependency while a restart waits for it, and briefly knows no instance of it.
func TestARestartWaitsForADependencyThatMovesToThisEngine(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		web, d, db := new(fakeHandler), newDriver("web", healthy), liveness("db")
		rule := probe.Rule{Period: 10 * time.Second, FailureThreshold: 3}
		others := followtest.New(t, rule, db)
		defer others.Follow(h.engine, 20*s)()
		h.probes(map[string]probe.Handler{"web": web})
		h.apply(map[string]restart.Unit{"web": {Driver: d}})
		if _, err := h.engine.Change(engine.Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
			t.Fatal(err)
		}
		h.sleep(5 * s)
		web.setFailing(true)
		h.sleep(10 * s)
		set := probe.Set{db: probe.Probe{Rule: rule, Handler: &fakeHandler{failing: true}}}
		if _, err := h.engine.Owner("fleet").Change(engine.Change{Set: set}); err != nil {
			t.Fatal(err)
		}
		h.sleep(10 * s)
		h.expect("web", "web-0", probe.Running, probe.ReasonDependency)
		if len(d.graces()) > 0 {
			t.Fatalf("web was restarted before db was attempted\n%s", h.log)
		}
		h.sleep(60 * s) // it has no instance: the wait is no longer than for a result
		if len(d.graces()) == 0 {
			t.Errorf("web was not restarted\n%s", h.log)
		}
	})
}

// A dependency that does not respond, or whose attempts fail sometimes but never often enough, does not block the
// restart of a target forever.
func TestARestartWaitsForADependencyForABoundedTime(t *testing.T) {
	for name, outcome := range map[string]probe.Outcome{"hangs": probe.Unknown, "flaps": probe.Failure} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				web, d := new(fakeHandler), newDriver("web", healthy)
				attempts := 0
				db := probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
					attempts++
					switch {
					case outcome == probe.Unknown && attempts > 3:
						<-ctx.Done()
						return probe.Broken("test.hangs", "")
					case outcome == probe.Failure && attempts%3 != 0:
						return probe.Fail("test.flaps", "")
					}
					return probe.Succeed("")
				})
				h.slowly(db, web)
				h.apply(map[string]restart.Unit{"web": {Driver: d}, "db": {}})
				if _, err := h.engine.Change(engine.Change{Dependencies: map[string][]string{"web": {"db"}}}); err != nil {
					t.Fatal(err)
				}
				h.sleep(45 * s)
				web.setFailing(true)
				h.sleep(90 * s)
				if len(d.graces()) == 0 {
					t.Errorf("web was not restarted\n%s", h.log)
				}
			})
		})
	}
}
