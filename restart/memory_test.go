package restart_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// generation runs an engine with a controller that resumes from the memories of another one. It returns the
// controller's own memories before and after it stops.
func generation(t *testing.T, units map[string]restart.Unit, r map[string]restart.Memory, test func(h *harness, goOn map[string]string)) (killed, stopped map[string]restart.Memory) {
	t.Helper()
	h := newHarness(t, restart.Budget{Max: 2, Per: time.Hour})
	if err := h.control.Apply(units); err != nil {
		t.Fatal(err)
	}
	goOn := h.control.Restore(r)
	h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
	ctx, stop := context.WithCancel(t.Context())
	engineCtx, endEngine := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = h.engine.Run(engineCtx) })
	running.Go(func() { _ = h.control.Run(ctx) })
	synctest.Wait()
	test(h, goOn)
	killed = remembered(t, h.control)
	stop()
	synctest.Wait()
	h.control.Kill()
	endEngine()
	running.Wait()
	return killed, remembered(t, h.control)
}

// remembered returns the memories of a controller, after encoding and decoding.
func remembered(t *testing.T, c *restart.Controller) (r map[string]restart.Memory) {
	t.Helper()
	all := map[string]restart.Memory{}
	for _, target := range c.Remembered() {
		if m, ok := c.Memory(target); ok {
			all[target] = m
		}
	}
	b, err := json.Marshal(all)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func revised(d restart.Driver, p restart.Policy) map[string]restart.Unit {
	return map[string]restart.Unit{"web": {Driver: d, Policy: p, Revision: "1"}}
}

func TestBackOffAndRestartCountGoOn(t *testing.T) {
	for _, how := range []string{"killed", "stopped"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newDriver("a", func(int) behavior { return behavior{exitsAfter: time.Second, code: 1} })
				killed, stopped := generation(t, revised(a, restart.Always), nil, func(h *harness, _ map[string]string) {
					h.sleep(15 * time.Second) // 0 to 1, 1 to 2, 12 to 13, then 20 s of back-off
					h.expectTimes("instances started at", a.starts(), 0, time.Second, 12*time.Second)
				})
				r := map[string]map[string]restart.Memory{"killed": killed, "stopped": stopped}[how]
				b := newDriver("b", func(int) behavior { return behavior{exitsAfter: time.Second, code: 1} })
				generation(t, revised(b, restart.Always), r, func(h *harness, goOn map[string]string) {
					in := h.expect("web", "a-2", probe.Ended, probe.ReasonBackOff)
					if in.Restarts != 2 || len(goOn) != 0 {
						t.Errorf("got %+v, and that %v go on", in, goOn)
					}
					h.sleep(19 * time.Second)
					in = h.expect("web", "b-0", probe.Ended, probe.ReasonBackOff)
					h.expectTimes("the next instance started at", b.starts(), 18*time.Second)
					if in.Restarts != 3 {
						t.Errorf("got %+v", in)
					}
					h.sleep(39 * time.Second)
					h.expectTimes("the next instances started at", b.starts(), 18*time.Second)
					h.sleep(2 * time.Second)
					h.expectTimes("the next instances started at", b.starts(), 18*time.Second, 59*time.Second)
				})
			})
		})
	}
}

func TestInstanceOfADeadEngineIsFollowedByANewOneAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newDriver("a", healthy)
		killed, _ := generation(t, revised(a, restart.Always), nil, func(h *harness, _ map[string]string) { h.sleep(time.Minute) })
		b := newDriver("b", healthy)
		generation(t, revised(b, restart.Always), killed, func(h *harness, goOn map[string]string) {
			if in := h.expect("web", "b-0", probe.Running, ""); in.Restarts != 0 || len(goOn) != 0 {
				t.Errorf("got %+v, and that %v go on: the restart was the engine's", in, goOn)
			}
		})
	})
}

func TestPolicyHoldsForInstancesOfAnEarlierEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newDriver("a", func(int) behavior { return behavior{exitsAfter: time.Second} })
		killed, _ := generation(t, revised(a, restart.OnFailure), nil, func(h *harness, _ map[string]string) { h.sleep(time.Minute) })
		b := newDriver("b", healthy)
		generation(t, revised(b, restart.OnFailure), killed, func(h *harness, _ map[string]string) {
			h.sleep(time.Hour)
			h.expect("web", "a-0", probe.Gone, probe.ReasonCompleted)
			h.apply(revised(b, restart.Always))
			h.expect("web", "b-0", probe.Running, "")
		})
	})
}

func TestMemoryOfAnotherRevisionIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := func(int) behavior { return behavior{exitsAfter: time.Second, code: 1} }
		killed, _ := generation(t, revised(newDriver("a", failing), restart.Always), nil, func(h *harness, _ map[string]string) {
			h.sleep(15 * time.Second)
		})
		b := newDriver("b", healthy)
		units := map[string]restart.Unit{"web": {Driver: b, Revision: "2"}}
		generation(t, units, killed, func(h *harness, _ map[string]string) {
			if in := h.expect("web", "b-0", probe.Running, ""); in.Restarts != 0 {
				t.Errorf("got %+v", in)
			}
		})
	})
}

func TestBackOffOfAWrongClockIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := func(int) behavior { return behavior{exitsAfter: time.Second, code: 1} }
		killed, _ := generation(t, revised(newDriver("a", failing), restart.Always), nil, func(h *harness, _ map[string]string) {
			h.sleep(15 * time.Second)
		})
		m := killed["web"].Shifted(1000 * time.Hour)
		m.Exits, m.Started = -5, -5
		b := newDriver("b", healthy)
		generation(t, revised(b, restart.Always), map[string]restart.Memory{"web": m}, func(h *harness, _ map[string]string) {
			h.sleep(restart.DefaultMaxBackOff + time.Second)
			if in := h.expect("web", "b-0", probe.Running, ""); in.Restarts != 0 {
				t.Errorf("got %+v", in)
			}
		})
	})
}

// resumer is a driver whose instance outlives the engine.
type resumer struct {
	*fakeDriver
	alive   string // ID of the instance that can be resumed
	resumed string
	then    behavior // of that instance
}

func (r *resumer) Resume(id string) bool {
	if id == r.alive {
		r.resumed = id
	}
	return r.resumed != ""
}

func (r *resumer) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	if r.resumed == "" {
		return r.fakeDriver.Run(ctx, began, end)
	}
	began(restart.Begun{ID: r.resumed})
	r.resumed = ""
	return r.wait(ctx, r.then, end)
}

func TestInstanceThatOutlivesItsEngineGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		a := newDriver("a", healthy)
		killed, _ := generation(t, revised(a, restart.Always), nil, func(h *harness, _ map[string]string) { h.sleep(time.Hour) })
		for name, alive := range map[string]bool{"alive": true, "dead": false} {
			r := &resumer{fakeDriver: newDriver("b", healthy)}
			if alive {
				r.alive = "a-0"
			}
			again, _ := generation(t, revised(r, restart.Always), killed, func(h *harness, goOn map[string]string) {
				in := h.instance("web")
				wasStarted := len(r.starts()) == 1
				if goes := goOn["web"] == "a-0"; goes != alive || wasStarted == alive || in.Since.Equal(began) != alive || (in.Restarts == 0) != alive {
					t.Errorf("%s: got %+v and that %v go on", name, in, goOn)
				}
			})
			if m := again["web"]; (m.Started == 1) != alive {
				t.Errorf("%s: remembered %+v", name, m)
			}
		}
	})
}

func TestStaticInstanceGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		h := newHarness(t, restart.Budget{})
		time.Sleep(time.Hour)
		h.apply(map[string]restart.Unit{"web": {}, "db": {Driver: newDriver("db", healthy), Revision: "1"}})
		static := restart.Memory{Instance: "static", Since: began}
		goOn := h.control.Restore(map[string]restart.Memory{"web": static, "db": static, "old": static})
		if in := h.expect("web", "static", probe.Running, ""); !in.Since.Equal(began) || len(goOn) != 1 || goOn["web"] != "static" {
			t.Errorf("got %+v, and that %v go on", in, goOn)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- h.control.Run(ctx) }()
		synctest.Wait()
		if in := h.expect("web", "static", probe.Running, ""); !in.Since.Equal(began) {
			t.Errorf("got %+v", in)
		}
		stop()
		<-done
		h.control.Kill()
	})
}

// Charges to the budget are in the memories of targets, so that they move with the targets.
func TestSpentBudgetGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		units, memories := map[string]restart.Unit{}, map[string]restart.Memory{}
		for name, ago := range map[string]time.Duration{"web": 0, "long ago": 61 * time.Minute, "an hour ago": 59 * time.Minute, "just now": time.Minute} {
			units[name] = restart.Unit{Driver: newDriver(name, healthy), Revision: "1"}
			if m := (restart.Memory{Revision: units[name].RevisionID(), Instance: "before", Started: 1}); ago > 0 {
				m.Charged = now.Add(-ago)
				memories[name] = m
			}
		}
		handler := &fakeHandler{failing: true}
		_, stopped := generation(t, units, memories, func(h *harness, _ map[string]string) {
			h.probes(map[string]probe.Handler{"web": handler})
			h.sleep(30 * time.Second)
			in := h.expect("web", "web-0", probe.Running, probe.ReasonBudget)
			h.expectText(in.Detail, "restart_budget allows restarts of 2 targets in 1h")
			h.sleep(40 * time.Second)
			if in := h.instance("web"); in.ID != "web-1" {
				t.Errorf("it was not restarted: %+v", in)
			}
		})
		if m := stopped["web"]; m.Charged.Sub(now).Round(time.Second) != time.Minute {
			t.Errorf("remembered %+v", m)
		}
	})
}

func TestChangedIsCalledWithWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		calls := map[string]int{}
		control, err := restart.New(restart.Config{
			Engine:  engine.New(engine.Config{}),
			Changed: func(target string) { mu.Lock(); defer mu.Unlock(); calls[target]++ },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- control.Run(ctx) }()
		expect := func(what string, remembers bool, n int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if _, ok := control.Memory("web"); ok != remembers || calls["web"] != n {
				t.Errorf("%s: remembered %v, %d calls, want %v, %d", what, ok, calls["web"], remembers, n)
			}
		}
		expect("at first", false, 0)
		_ = control.Apply(revised(newDriver("a", healthy), restart.Always))
		expect("after the start", true, 1)
		_ = control.Apply(nil)
		expect("after its end", false, 2)
		stop()
		<-done
		control.Kill()
	})
}

// unattached is a Resumer that cannot take over its instance at first.
type unattached struct {
	resumer
	fails int // number of calls of Run that fail
	then  string
}

func (u *unattached) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	if u.fails--; u.fails >= 0 {
		return restart.Exit{Code: -1, Err: fmt.Errorf("%w: too many open files", restart.ErrNotTakenOver)}
	}
	began(restart.Begun{ID: u.then})
	return u.wait(ctx, behavior{}, end)
}

func TestAnInstanceThatIsNotTakenOverAtFirstStaysReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed, _ := generation(t, revised(newDriver("a", healthy), restart.Always), nil, func(h *harness, _ map[string]string) { h.sleep(time.Hour) })
		for then, restarts := range map[string]int32{"a-0": 0, "another": 1} {
			r := &unattached{resumer{fakeDriver: newDriver("b", healthy), alive: "a-0"}, 5, then}
			again, _ := generation(t, revised(r, restart.Always), killed, func(h *harness, goOn map[string]string) {
				for range 5 {
					if in := h.instance("web"); in.ID != "a-0" || in.Phase != probe.Running || in.Restarts != 0 {
						t.Errorf("before the instance is taken over: %+v", in)
					}
					if m, _ := h.control.Memory("web"); m.Exited || m.Instance != "a-0" {
						t.Errorf("the controller remembers %+v", m)
					}
					h.sleep(2 * time.Second)
				}
				h.sleep(time.Minute)
				if in := h.instance("web"); in.ID != then || in.Phase != probe.Running || in.Restarts != restarts {
					t.Errorf("got %+v, want %s with %d restarts", in, then, restarts)
				}
			})
			if m := again["web"]; m.Instance != then || m.Started != restarts+1 {
				t.Errorf("the controller remembers %+v", m)
			}
		}
	})
}

func TestARemovedInstanceThatIsNotTakenOverAtFirstIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed, _ := generation(t, revised(newDriver("a", healthy), restart.Always), nil, func(h *harness, _ map[string]string) { h.sleep(time.Hour) })
		for name, units := range map[string]map[string]restart.Unit{
			"removed": nil,
			"changed": {"web": {Driver: newDriver("b", healthy), Revision: "2"}},
		} {
			r := &unattached{resumer{fakeDriver: newDriver("a", healthy), alive: "a-0"}, 5, "a-0"}
			generation(t, revised(r, restart.Always), killed, func(h *harness, _ map[string]string) {
				h.sleep(time.Second)
				h.apply(units)
				h.sleep(2 * time.Minute)
				if graces := r.graces(); len(graces) != 1 || graces[0] != restart.DefaultTerminationGracePeriod {
					t.Errorf("%s: requests to end: %v", name, graces)
				}
				if in := h.instance("web"); units != nil && (in.ID != "b-0" || in.Phase != probe.Running) {
					t.Errorf("%s: got %+v", name, in)
				}
			})
		}
	})
}

func TestTheEngineStopsWhileAnInstanceIsNotTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed, _ := generation(t, revised(newDriver("a", healthy), restart.Always), nil, func(h *harness, _ map[string]string) { h.sleep(time.Hour) })
		r := &unattached{resumer{fakeDriver: newDriver("a", healthy), alive: "a-0"}, 1 << 30, "a-0"}
		_, stopped := generation(t, revised(r, restart.Always), killed, func(h *harness, _ map[string]string) { h.sleep(time.Second) })
		if m := stopped["web"]; m.Instance != "a-0" || m.Exited {
			t.Errorf("the controller remembers %+v", m)
		}
	})
}

func TestTakingOverAnInstanceBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed, _ := generation(t, revised(newDriver("a", healthy), restart.Always), nil, func(h *harness, _ map[string]string) { h.sleep(time.Hour) })
		r := &unattached{resumer{fakeDriver: newDriver("a", healthy), alive: "a-0"}, 1 << 30, "a-0"}
		generation(t, revised(r, restart.Always), killed, func(h *harness, _ map[string]string) {
			h.sleep(time.Hour)
			if n := strings.Count(h.log.String(), "instance not taken over, retrying"); n < 60 || n > 70 {
				t.Errorf("%d tries in an hour", n)
			}
		})
	})
}

// endedSurvivor is a Resumer whose instance ends before it is taken over.
type endedSurvivor struct{ resumer }

func (e *endedSurvivor) Run(ctx context.Context, _ func(restart.Begun), end <-chan time.Duration) restart.Exit {
	select {
	case <-end:
	case <-ctx.Done():
	}
	return restart.Exit{Code: -1, Err: errors.New("asked to end")}
}

func TestARemovedInstanceThatEndsBeforeItIsTakenOverIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed, _ := generation(t, revised(newDriver("a", healthy), restart.Always), nil, func(h *harness, _ map[string]string) { h.sleep(time.Hour) })
		r := &endedSurvivor{resumer{fakeDriver: newDriver("a", healthy), alive: "a-0"}}
		generation(t, revised(r, restart.Always), killed, func(h *harness, _ map[string]string) {
			h.expect("web", "a-0", probe.Running, "")
			h.probes(nil)
			h.apply(nil)
			h.sleep(time.Minute)
			if target, known := h.engine.Target("web"); known {
				t.Errorf("the target is still there: %+v", target)
			}
		})
	})
}

// requested returns the memories of a controller that was killed after it had asked an instance to terminate because of
// a failing probe, and before the instance had terminated.
func requested(t *testing.T, p restart.Policy) map[string]restart.Memory {
	t.Helper()
	slow := func(int) behavior { return behavior{endsAfter: 20 * time.Second} }
	killed, _ := generation(t, revised(newDriver("a", slow), p), nil, func(h *harness, _ map[string]string) {
		h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}})
		h.sleep(2 * time.Second)
		h.expect("web", "a-0", probe.Running, probe.ReasonEnding)
	})
	if killed["web"].Charged.IsZero() {
		t.Fatalf("remembered %+v", killed)
	}
	return killed
}

func TestARequestedRestartIsTakenFromTheBudgetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed := requested(t, restart.Always)
		r := &resumer{fakeDriver: newDriver("b", healthy), alive: "a-0", then: behavior{ignoresEnd: true}}
		again, _ := generation(t, revised(r, restart.Always), killed, func(h *harness, _ map[string]string) {
			h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}})
			h.sleep(20 * time.Second)
			h.expect("web", "a-0", probe.Running, probe.ReasonEnding)
			h.expectTimes("asked to end within", r.graces())
			h.sleep(40 * time.Second) // 35 s after the request, then 10 s of back-off
			h.expectTimes("asked to end within", r.graces(), restart.DefaultTerminationGracePeriod)
		})
		if got, want := again["web"].Charged, killed["web"].Charged; !got.Equal(want) {
			t.Errorf("charged at %v and at %v, want one restart", want, got)
		}
	})
}

// It may exit with status 0, as requested.
func TestARequestedEndIsOneForTheNextEngineToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed := requested(t, restart.OnFailure)
		r := &resumer{fakeDriver: newDriver("b", healthy), alive: "a-0", then: behavior{exitsAfter: 5 * time.Second}}
		generation(t, revised(r, restart.OnFailure), killed, func(h *harness, _ map[string]string) {
			h.sleep(10 * time.Second)
			h.expect("web", "b-0", probe.Running, "")
		})
	})
}

func TestAnInstanceIsRestartedWhateverItsIDIs(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := newDriver("\xff\n", healthy)
		h.apply(map[string]restart.Unit{"web": {Driver: d, Revision: "1"}})
		h.sleep(s)
		m, _ := h.control.Memory("web")
		if got := remembered(t, h.control)["web"]; got.Instance == "" || got.Instance != m.Instance || got.Instance != h.instance("web").ID {
			t.Errorf("the instance is %q, is remembered as %q, and written as %q", h.instance("web").ID, m.Instance, got.Instance)
		}
		h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}})
		if h.sleep(time.Minute); len(d.starts()) < 2 {
			t.Error("an instance that fails is not restarted")
		}
	})
}

// The request was withdrawn, so a new one counts as another restart.
func TestARequestThatIsWithdrawnIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed := requested(t, restart.Always)
		r := &resumer{fakeDriver: newDriver("b", healthy), alive: "a-0", then: behavior{ignoresEnd: true}}
		again, _ := generation(t, revised(r, restart.Always), killed, func(h *harness, _ map[string]string) {
			h.sleep(time.Minute)
			h.expect("web", "a-0", probe.Running, "")
		})
		if m := again["web"]; m.Requested {
			t.Errorf("the controller remembers %+v", m)
		}
	})
}

// Other engines show an instance that was asked to terminate as draining. If its restart has failed or was withheld, it
// keeps running until the next attempt, which is charged to the budget already.
func TestARequestThatHasFailedIsNoneUntilTheNextTry(t *testing.T) {
	for name, d := range map[string]restart.Driver{
		"failed":   &refusing{external: external{newDriver("web", healthy)}, takes: 5 * s},
		"withheld": &withheld{interrupted{lacking: lacking{fakeDriver: newDriver("web", healthy)}, id: "web-0"}},
		"shortage": &lacking{fakeDriver: newDriver("web", healthy), roomAfter: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{Max: 1, Per: time.Hour}, func(h *harness) {
				h.apply(map[string]restart.Unit{"web": {Driver: d, TerminationGracePeriod: 10 * s, Revision: "1"}})
				h.probes(map[string]probe.Handler{"web": &fakeHandler{failing: true}})
				goesOn := 0
				for range 30 {
					h.sleep(s)
					in := h.instance("web")
					m, _ := h.control.Memory("web")
					if in.Phase != probe.Running || in.Restarts > 0 {
						break // it has ended
					}
					if drains := in.Managed && in.Reason == probe.ReasonEnding; m.Requested != drains {
						t.Errorf("it is shown as %+v, and remembered as %+v", in, m)
					}
					if !in.Managed {
						goesOn++
						if !m.Budgeted {
							t.Errorf("remembered as %+v", m)
						}
					}
				}
				if goesOn == 0 {
					t.Errorf("it never goes on\n%s", h.log)
				}
			})
		})
	}
}

func TestTheLogSaysThatAnEarlierEngineKnewWhyAProbeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		killed, _ := generation(t, revised(newDriver("a", healthy), restart.Always), nil, func(h *harness, _ map[string]string) { h.sleep(time.Hour) })
		r := &resumer{fakeDriver: newDriver("b", healthy), alive: "a-0"}
		generation(t, revised(r, restart.Always), killed, func(h *harness, _ map[string]string) {
			id := probe.ID{Target: "web", Kind: probe.Liveness, Name: "db"}
			_, err := h.engine.Change(engine.Change{
				Set:      probe.Set{id: {Rule: probe.Rule{FailureThreshold: 1}, Handler: &fakeHandler{failing: true}, HandlerName: "test"}},
				Memories: map[probe.ID]engine.Memory{id: {State: verdict.State{Instance: "a-0", Verdict: probe.Failing, Last: probe.Failure, OnHold: true}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			h.sleep(2 * time.Second)
			h.expectText(h.log.String(), "probe=web:liveness/db reason=restart.restored grace_period=30s")
		})
	})
}
