package restart_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// slow takes two seconds to terminate.
func slow(int) behavior { return behavior{endsAfter: 2 * time.Second} }

// stack is three targets that are started one after another.
func stack(behave func(int) behavior) (units map[string]restart.Unit, db, app, web *fakeDriver) {
	db, app, web = newDriver("db", behave), newDriver("app", behave), newDriver("web", behave)
	return map[string]restart.Unit{
		"db":  {Driver: db, Revision: "1"},
		"app": {Driver: app, Revision: "1", StartAfter: []string{"db"}},
		"web": {Driver: web, Revision: "1", StartAfter: []string{"app", "db"}},
	}, db, app, web
}

// ready gives targets readiness probes with a period of one second.
func (h *harness) ready(handlers map[string]probe.Handler) {
	h.Helper()
	set := probe.Set{}
	for target, handler := range handlers {
		id := probe.ID{Target: target, Kind: probe.Readiness}
		set[id] = probe.Probe{Rule: probe.Rule{Period: time.Second, FailureThreshold: 1}, Handler: handler, HandlerName: "test"}
	}
	if _, err := h.engine.Apply(set); err != nil {
		h.Fatal(err)
	}
}

func TestATargetIsStartedOnceThoseBeforeItAreReady(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		ready := &fakeHandler{failing: true}
		h.ready(map[string]probe.Handler{"db": ready})
		units, db, app, web := stack(healthy)
		h.apply(units)
		h.sleep(30 * time.Second)
		h.expectTimes("db starts at", db.starts(), 0)
		h.expectTimes("app starts at", app.starts())
		h.expectText(h.expect("app", "none", probe.Waiting, probe.ReasonStartAfter).Detail, "waiting for db (not_ready)")
		h.expectText(h.expect("web", "none", probe.Waiting, probe.ReasonStartAfter).Detail, "waiting for app (starting), db (not_ready)")
		if status, _ := h.engine.Target("app"); status.State != probe.StateStarting || status.State.InTrouble() {
			t.Errorf("the state of app is %v", status.State)
		}
		ready.setFailing(false)
		h.sleep(2 * time.Second)
		h.expectTimes("app starts at", app.starts(), 30*time.Second)
		h.expectTimes("web starts at", web.starts(), 30*time.Second)
	})
}

// A Oneshot that is restarted until it succeeds does not count as ready while it runs.
func TestATargetIsStartedOnceAOneshotThatIsRetriedHasCompleted(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		migration := newDriver("migration", func(n int) behavior {
			return behavior{exitsAfter: 5 * time.Second, code: []int{3, 0}[n]}
		})
		app := newDriver("app", healthy)
		h.apply(map[string]restart.Unit{
			"migration": {Driver: migration, Policy: restart.OnFailure, Oneshot: true},
			"app":       {Driver: app, StartAfter: []string{"migration"}},
		})
		h.sleep(8 * time.Second)
		h.expectText(h.instance("app").Detail, "waiting for migration (")
		h.sleep(time.Minute)
		h.expectTimes("migration starts at", migration.starts(), 0, 5*time.Second)
		h.expectTimes("app starts at", app.starts(), 10*time.Second)
	})
}

func TestATargetIsStartedOnceAOneShotBeforeItHasCompleted(t *testing.T) {
	for name, code := range map[string]int{"completed": 0, "failed": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				h.ready(map[string]probe.Handler{"migration": &fakeHandler{failing: true}}) // it is never ready
				migration := newDriver("migration", func(int) behavior { return behavior{exitsAfter: 5 * time.Second, code: code} })
				app := newDriver("app", healthy)
				h.apply(map[string]restart.Unit{
					"migration": {Driver: migration, Policy: restart.Never},
					"app":       {Driver: app, StartAfter: []string{"migration"}},
				})
				h.sleep(time.Minute)
				if code == 0 {
					h.expectTimes("app starts at", app.starts(), 5*time.Second)
					return
				}
				h.expectTimes("app starts at", app.starts())
				h.expectText(h.instance("app").Detail, "waiting for migration (exited)")
			})
		})
	}
}

// The one-shot runs for five seconds, and would count as ready meanwhile, since it has no readiness probe.
func TestATargetIsStartedOnceAOneShotWithoutProbesHasCompleted(t *testing.T) {
	for policy, want := range map[restart.Policy][]time.Duration{restart.Never: {5 * time.Second}, restart.OnFailure: {0}, restart.Always: {0}} {
		t.Run(policy.String(), func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				once := newDriver("once", func(int) behavior { return behavior{exitsAfter: 5 * time.Second} })
				app := newDriver("app", healthy)
				h.apply(map[string]restart.Unit{
					"once": {Driver: once, Policy: policy},
					"app":  {Driver: app, StartAfter: []string{"once"}},
				})
				h.sleep(time.Second)
				if policy == restart.Never {
					h.expectText(h.instance("app").Detail, "waiting for once (not completed)")
				}
				h.sleep(time.Minute)
				h.expectTimes("app starts at", app.starts(), want...)
			})
		})
	}
}

func TestARestartWaitsForNoOtherTarget(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		db := newDriver("db", func(n int) behavior { return behavior{exitsAfter: 10 * time.Second} })
		app := newDriver("app", func(n int) behavior {
			if n == 0 {
				return behavior{exitsAfter: 21 * time.Second}
			}
			return behavior{}
		})
		backOff := restart.BackOff{Initial: time.Minute}
		h.apply(map[string]restart.Unit{"db": {Driver: db, BackOff: backOff}, "app": {Driver: app, StartAfter: []string{"db"}}})
		h.sleep(30 * time.Second) // db waits for its back-off since 20 s
		h.expectTimes("db starts at", db.starts(), 0, 10*time.Second)
		h.expectTimes("app starts at", app.starts(), 0, 21*time.Second)
	})
}

func TestTargetsAreTerminatedInReverseOrder(t *testing.T) {
	for name, end := range map[string]func(h *harness, units map[string]restart.Unit){
		"stopped": func(h *harness, _ map[string]restart.Unit) { h.stop() },
		"removed": func(h *harness, units map[string]restart.Unit) {
			h.apply(map[string]restart.Unit{"other": units["other"]})
		},
		"removed one by one": func(h *harness, units map[string]restart.Unit) {
			h.apply(map[string]restart.Unit{"other": units["other"], "app": units["app"], "db": units["db"]})
			h.apply(map[string]restart.Unit{"other": units["other"]})
		},
		"stopped after the order was reversed": func(h *harness, units map[string]restart.Unit) {
			db, app, web := units["db"], units["app"], units["web"]
			web.StartAfter, app.StartAfter, db.StartAfter = []string{"app"}, []string{"db"}, nil
			h.apply(map[string]restart.Unit{"db": db, "app": app, "web": web, "other": units["other"]})
			h.stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				units, db, app, web := stack(slow)
				if strings.Contains(name, "reversed") {
					u := units["db"]
					u.StartAfter, units["db"] = nil, u
					u = units["app"]
					u.StartAfter, units["app"] = nil, u
				}
				other := newDriver("other", slow)
				units["other"] = restart.Unit{Driver: other, Revision: "1"}
				h.apply(units)
				h.sleep(time.Second)
				end(h, units)
				for _, step := range []struct{ web, app, db int }{{1, 0, 0}, {1, 1, 0}, {1, 1, 1}} {
					h.sleep(time.Second)
					if len(web.graces()) != step.web || len(app.graces()) != step.app || len(db.graces()) != step.db {
						t.Fatalf("web was asked to end %d times, app %d and db %d, want %+v\n%s", len(web.graces()), len(app.graces()), len(db.graces()), step, h.log)
					}
					h.sleep(time.Second)
				}
				if !strings.Contains(name, "removed") && len(other.graces()) != 1 {
					t.Error("the other target was not asked to end")
				}
			})
		})
	}
}

func TestKillWaitsForNoOrder(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		units, _, _, _ := stack(func(int) behavior { return behavior{ignoresEnd: true} })
		h.apply(units)
		h.sleep(time.Second)
		h.stop()
		h.sleep(time.Second)
		h.control.Kill()
		if err := <-h.ended; err != nil {
			t.Error(err)
		}
		h.ended <- nil
	})
}

func TestAStopWaitsForNoTargetThatHasNotStarted(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.ready(map[string]probe.Handler{"db": &fakeHandler{failing: true}})
		units, db, _, _ := stack(slow)
		h.apply(units)
		h.sleep(5 * time.Second)
		h.stop()
		h.sleep(time.Second)
		if len(db.graces()) != 1 {
			t.Error("db was not asked to end")
		}
	})
}

func TestACycleIsRejectedWithAllUnits(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		units, db, _, _ := stack(healthy)
		cyclic := maps.Clone(units)
		cyclic["db"] = restart.Unit{Driver: db, Revision: "1", StartAfter: []string{"web", "none"}}
		err := h.control.Apply(cyclic)
		var field *probe.FieldError
		if !errors.As(err, &field) || field.Field != "start_after" {
			t.Errorf("Apply has returned %v", err)
		}
		h.expectText(err.Error(), `target "app": start_after has a cycle: app after db after web after app; remove one of these`)
		h.sleep(time.Minute)
		h.expectTimes("db starts at", db.starts())

		// A cycle through units that TakeOver leaves unchanged.
		h.apply(units)
		err = h.control.TakeOver(map[string]restart.Unit{"db": cyclic["db"]}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), `target "app": start_after has a cycle: app after db after web after app`) {
			t.Errorf("TakeOver has returned %v", err)
		}
		h.sleep(time.Minute)
		h.expectTimes("db starts at", db.starts(), time.Minute)
		if err := h.control.TakeOver(map[string]restart.Unit{"db": cyclic["db"]}, []string{"web"}, nil); err != nil {
			t.Errorf("without web there is no cycle: %v", err)
		}
		if err := h.control.TakeOver(map[string]restart.Unit{"self": {Driver: newDriver("self", healthy), StartAfter: []string{"self"}}}, nil, nil); err == nil {
			t.Error("a target is started after itself")
		}
	})
}

// A sidecar ends with the targets that it serves, in reverse order of the start, and starts again with them.
func TestATargetEndsAfterThoseThatItServes(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		app := newDriver("app", func(n int) behavior { return behavior{exitsAfter: 10 * time.Second, code: n} })
		h.apply(map[string]restart.Unit{
			"app":   {Driver: app, Policy: restart.Never},
			"proxy": {Driver: newDriver("proxy", healthy), StopAfter: []string{"app"}},
			"vault": {Driver: newDriver("vault", func(int) behavior { return behavior{endsAfter: 5 * time.Second} }), StopAfter: []string{"app", "proxy"}},
		})
		h.sleep(9 * time.Second)
		h.expect("proxy", "proxy-0", probe.Running, "")
		h.sleep(2 * time.Second)
		in := h.expect("proxy", "proxy-0", probe.Gone, probe.ReasonCompleted)
		h.expectText(in.Detail, "all targets that it serves have exited")
		h.expect("vault", "vault-0", probe.Running, "")
		h.sleep(10 * time.Second)
		h.expect("vault", "vault-0", probe.Gone, probe.ReasonCompleted)
		h.expectText(h.log.String(), `level=INFO msg="terminating instance: all targets that it serves have exited" target=proxy`)

		h.operate(h.control.Restart, "app")
		h.sleep(time.Second)
		h.expect("app", "app-1", probe.Running, "")
		h.expect("proxy", "proxy-1", probe.Running, "")
		h.expect("vault", "vault-1", probe.Running, "")
		h.operate(h.control.Stop, "app") // a stopped target has not exited for good
		h.sleep(time.Minute)
		h.expect("proxy", "proxy-1", probe.Running, "")
	})
}

// Apply changes what a target serves, for the next exit.
func TestATargetEndsAfterThoseThatItServesNow(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		units := map[string]restart.Unit{"proxy": {Driver: newDriver("proxy", healthy), StopAfter: []string{"app", "job"}}}
		for n, name := range []string{"app", "job", "task"} {
			units[name] = restart.Unit{Policy: restart.Never, Driver: newDriver(name, func(int) behavior {
				return behavior{exitsAfter: time.Duration(n+1) * 10 * time.Second}
			})}
		}
		h.apply(units)
		h.sleep(5 * time.Second)
		proxy := units["proxy"]
		proxy.StopAfter = []string{"task"}
		units["proxy"] = proxy
		h.apply(units)
		h.sleep(20 * time.Second)
		h.expect("job", "job-0", probe.Gone, probe.ReasonCompleted)
		h.expect("proxy", "proxy-0", probe.Running, "")
		h.sleep(10 * time.Second)
		h.expect("proxy", "proxy-0", probe.Gone, probe.ReasonCompleted)
		proxy.StopAfter = nil
		units["proxy"] = proxy
		h.apply(units)
		h.sleep(time.Second)
		h.expect("proxy", "proxy-1", probe.Running, "")
		delete(units, "proxy")
		h.apply(units)
		h.operate(h.control.Restart, "task")
		h.sleep(time.Minute)
		h.expect("task", "task-1", probe.Gone, probe.ReasonCompleted)
	})
}

// A sidecar that has ended with the targets that it serves has no reason to restart, neither now nor when it starts
// again.
func TestARestartOfATargetThatHasEndedWithThoseThatItServesIsIgnored(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.apply(map[string]restart.Unit{
			"app":   {Driver: newDriver("app", func(int) behavior { return behavior{exitsAfter: 10 * time.Second} }), Policy: restart.Never},
			"db":    {Driver: newDriver("db", healthy)},
			"proxy": {Driver: newDriver("proxy", healthy), StartAfter: []string{"db"}, StopAfter: []string{"app"}},
			"vault": {
				Driver:     newDriver("vault", func(int) behavior { return behavior{endsAfter: 5 * time.Second} }),
				StartAfter: []string{"db"}, StopAfter: []string{"app"},
			},
		})
		h.sleep(12 * time.Second)
		h.operate(h.control.Restart, "proxy")
		h.operate(h.control.Restart, "vault") // which is terminating
		h.sleep(10 * time.Second)
		for _, target := range []string{"proxy", "vault"} {
			h.expect(target, target+"-0", probe.Gone, probe.ReasonCompleted)
			h.expectText(h.log.String(), `msg="restart request ignored: all targets that it serves have exited" target=`+target)
		}
		h.operate(h.control.Stop, "db")
		h.operate(h.control.Restart, "app")
		h.sleep(time.Second)
		for _, target := range []string{"proxy", "vault"} {
			h.expect(target, target+"-0", probe.Ended, probe.ReasonStartAfter)
		}
	})
}
