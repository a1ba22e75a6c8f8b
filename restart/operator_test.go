package restart_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// operate makes a change, and fails the test unless it has an effect.
func (h *harness) operate(do func(target, by string) (bool, error), target string) {
	h.Helper()
	if changed, err := do(target, "alice"); !changed || err != nil {
		h.Fatalf("%s: changed %v, %v", target, changed, err)
	}
	h.sleep(0)
}

func TestAStoppedTargetStaysStoppedUntilItIsStarted(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := newDriver("web", slow)
		unit := restart.Unit{Driver: d, Revision: "1"}
		h.apply(map[string]restart.Unit{"web": unit})
		h.operate(h.control.Stop, "web")
		if in := h.instance("web"); !in.Terminating || in.Phase != probe.Running || in.Reason != probe.ReasonOperatorStop {
			t.Errorf("during its grace period the instance is %+v", in)
		}
		h.sleep(time.Hour)
		in := h.expect("web", "web-0", probe.Gone, probe.ReasonOperatorStop)
		h.expectText(in.Detail, "stopped by alice at 2000-01-01T00:00:00Z")
		if status, _ := h.engine.Target("web"); status.State != probe.StateStopped {
			t.Errorf("the state is %v", status.State)
		}
		if changed, err := h.control.Stop("web", "bob"); changed || err != nil {
			t.Errorf("a second stop: changed %v, %v", changed, err)
		}
		unit.Revision = "2" // also after a reload with another command
		h.apply(map[string]restart.Unit{"web": unit, "other": {}})
		h.expect("web", "web-0", probe.Gone, probe.ReasonOperatorStop)
		h.sleep(time.Hour)
		h.operate(h.control.Start, "web")
		h.expect("web", "web-1", probe.Running, "")
		h.expectTimes("starts", d.starts(), 0, 2*time.Hour)
		if changed, err := h.control.Start("web", "bob"); changed || err != nil {
			t.Errorf("a second start: changed %v, %v", changed, err)
		}
		h.expectText(h.log.String(), `msg="stop requested" target=web by=alice`)
		h.expectText(h.log.String(), `msg="start requested" target=web by=alice stopped_by=alice`)
	})
}

func TestATargetThatWaitsCanBeStopped(t *testing.T) {
	for name, behave := range map[string]func(int) behavior{
		"for its back-off":       func(int) behavior { return behavior{exitsAfter: time.Second, code: 1} },
		"since it cannot start":  func(int) behavior { return behavior{err: errors.New("no such program")} },
		"for another that fails": healthy,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				d := newDriver("web", behave)
				unit := restart.Unit{Driver: d, Revision: "1", BackOff: restart.BackOff{Initial: time.Minute}}
				if name == "for another that fails" {
					unit.StartAfter = []string{"db"}
				}
				h.apply(map[string]restart.Unit{"web": unit})
				h.sleep(10 * time.Second)
				before := len(d.starts())
				h.operate(h.control.Stop, "web")
				h.sleep(time.Hour)
				if in := h.instance("web"); in.Reason != probe.ReasonOperatorStop || len(d.starts()) != before {
					t.Errorf("it is %+v after %d starts, %d of them before", in, len(d.starts()), before)
				}
			})
		})
	}
}

func TestTheNextControllerKnowsWhatIsStopped(t *testing.T) {
	var stopped map[string]restart.Stopped
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.apply(map[string]restart.Unit{"web": {Driver: newDriver("web", healthy)}})
		h.operate(h.control.Stop, "web")
		stopped = h.control.Stopped()
	})
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := newDriver("web", healthy)
		h.stop() // the controller of the harness has begun to run
		if err := <-h.ended; err != nil {
			t.Error(err)
		}
		h.ended <- nil
		next, err := restart.New(restart.Config{Engine: h.engine})
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Apply(map[string]restart.Unit{"web": {Driver: d}}); err != nil {
			t.Fatal(err)
		}
		stopped["gone"] = restart.Stopped{By: "alice"}
		next.RestoreStopped(stopped)
		next.Announce()
		h.expect("web", "none", probe.Gone, probe.ReasonOperatorStop)
		ended := make(chan error, 1)
		go func() { ended <- next.Run(h.Context()) }()
		h.sleep(time.Hour)
		h.expect("web", "none", probe.Gone, probe.ReasonOperatorStop)
		if left := next.Stopped(); len(left) != 1 || left["web"] != stopped["web"] || len(d.starts()) != 0 {
			t.Errorf("stopped are %v, after %d starts", left, len(d.starts()))
		}
		next.Kill()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestAStopIsForgottenWithItsTarget(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		units := map[string]restart.Unit{"web": {Driver: newDriver("web", healthy)}}
		h.apply(units)
		h.operate(h.control.Stop, "web")
		h.apply(nil)
		h.apply(units)
		h.sleep(time.Second)
		h.expect("web", "web-1", probe.Running, "")
	})
}

func TestARestartThatIsAskedForNeedsNoFailureAndWaitsForNothing(t *testing.T) {
	for name, c := range map[string]struct {
		unit   restart.Unit
		behave func(int) behavior
		starts []time.Duration // after a restart at ten seconds
	}{
		"running":                 {restart.Unit{}, slow, []time.Duration{0, 12 * time.Second}},
		"running, never restarts": {restart.Unit{Policy: restart.Never}, slow, []time.Duration{0, 12 * time.Second}},
		"completed": {restart.Unit{Policy: restart.Never}, func(n int) behavior {
			return behavior{exitsAfter: time.Second + time.Duration(n)*time.Hour}
		}, []time.Duration{0, 10 * time.Second}},
		"waits for its back-off": {restart.Unit{BackOff: restart.BackOff{Initial: time.Hour, Max: time.Hour}}, func(n int) behavior {
			return behavior{exitsAfter: time.Second + time.Duration(n/2)*time.Hour}
		}, []time.Duration{0, time.Second, 10 * time.Second}},
		"waits for another target": {restart.Unit{StartAfter: []string{"none"}}, healthy, []time.Duration{10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				d := newDriver("web", c.behave)
				c.unit.Driver = d
				h.apply(map[string]restart.Unit{"web": c.unit})
				h.sleep(10 * time.Second)
				h.operate(h.control.Restart, "web")
				h.sleep(time.Minute)
				h.expectTimes("starts", d.starts(), c.starts...)
				if in := h.instance("web"); in.Phase != probe.Running || int(in.Restarts) != len(c.starts)-1 {
					t.Errorf("the instance is %+v", in)
				}
			})
		})
	}
}

func TestAnInstanceThatIsReplacedDrains(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.ready(map[string]probe.Handler{"web": &fakeHandler{}})
		h.apply(map[string]restart.Unit{"web": {Driver: newDriver("web", slow)}})
		h.sleep(5 * time.Second)
		h.operate(h.control.Restart, "web")
		if status, _ := h.engine.Target("web"); status.Gateway != probe.GatewayDraining {
			t.Errorf("for gateways the target is %v", status.Gateway)
		}
		h.sleep(5 * time.Second)
		h.expect("web", "web-1", probe.Running, "")
		if status, _ := h.engine.Target("web"); status.Gateway != probe.GatewayReady {
			t.Errorf("afterwards the target is %v", status.Gateway)
		}
	})
}

func TestAStoppedTargetIsStartedByARestart(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.apply(map[string]restart.Unit{"web": {Driver: newDriver("web", healthy)}})
		h.operate(h.control.Stop, "web")
		h.operate(h.control.Restart, "web")
		h.expect("web", "web-1", probe.Running, "")
	})
}

func TestATargetThatRunsElsewhereIsRestartedByItsCommand(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := external{newDriver("web", slow)}
		h.apply(map[string]restart.Unit{"web": {Driver: d, Policy: restart.Never}})
		h.operate(h.control.Restart, "web")
		h.sleep(5 * time.Second)
		h.expect("web", "web-1", probe.Running, "")
		if _, err := h.control.Stop("web", "alice"); err != restart.ErrNotRun {
			t.Errorf("a stop gives %v", err)
		}
	})
}

func TestAnInstanceThatDoesNotEndIsNotReplaced(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := external{newDriver("web", func(int) behavior { return behavior{ignoresEnd: true} })}
		h.apply(map[string]restart.Unit{"web": {Driver: d}})
		h.operate(h.control.Restart, "web")
		h.expect("web", "web-0", probe.Running, probe.ReasonOperatorRestart)
		h.sleep(time.Minute)
		in := h.expect("web", "web-0", probe.Running, "")
		h.expectText(in.Detail, "not restarted as requested at 2000-01-01T00:00:35.000Z: the instance was not terminated in time")
		h.expectText(h.log.String(), "instance not restarted as requested")
	})
}

// refusing is an External driver that never terminates its instance, and reports that.
type refusing struct {
	external
	failed   func(error)
	takes    time.Duration
	released time.Time
}

func (d *refusing) SetFailed(failed func(error)) { d.failed = failed }

func (d *refusing) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	began(restart.Begun{ID: "web-0"})
	for {
		select {
		case <-end:
			time.Sleep(d.takes)
			d.failed(errors.New("exit status 3"))
		case <-ctx.Done():
			d.released = time.Now()
			return restart.Exit{Code: -1, Err: context.Cause(ctx)}
		}
	}
}

// The grace period is for a restart in progress: once that has failed, the release need not wait.
func TestAnInstanceIsReleasedOnceItsRestartHasFailed(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := &refusing{external: external{newDriver("web", healthy)}, takes: 5 * s}
		failingUnit(h, d)
		removed := time.Now()
		h.apply(nil)
		h.sleep(time.Minute)
		if took := d.released.Sub(removed); took < 3*s || took > 5*s {
			t.Errorf("the instance was released after %v", took)
		}
	})
}

// The status says why a failing instance is still the same, until it recovers.
func TestAnInstanceThatIsNotRestartedSaysWhy(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		live := new(fakeHandler)
		h.apply(map[string]restart.Unit{"web": {Driver: &refusing{external: external{newDriver("web", healthy)}, takes: 5 * s}, TerminationGracePeriod: s}})
		h.probes(map[string]probe.Handler{"web": live})
		h.sleep(3 * s)
		live.setFailing(true)
		h.sleep(4 * s)
		if got := h.expect("web", "web-0", probe.Running, probe.ReasonEnding).Detail; got != "liveness failed (test.failing)" {
			t.Errorf("detail %q during the first request", got)
		}
		for range 3 { // also while it waits for the next request, and during that
			h.sleep(7 * s)
			if got := h.expect("web", "web-0", probe.Running, probe.ReasonEnding).Detail; got != "not restarted: exit status 3" {
				t.Errorf("detail %q", got)
			}
		}
		live.setFailing(false)
		h.sleep(5 * s)
		if got := h.expect("web", "web-0", probe.Running, "").Detail; got != "" {
			t.Errorf("detail %q of an instance that has recovered", got)
		}
	})
}

// How the previous instance exited is not why this one is being terminated.
func TestAnInstanceThatIsTerminatedSaysWhichProbeFailed(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		live := new(fakeHandler)
		d := newDriver("web", func(n int) behavior {
			if n == 0 {
				return behavior{exitsAfter: s, code: 3}
			}
			return behavior{endsAfter: 9 * s}
		})
		h.apply(map[string]restart.Unit{"web": {Driver: d, TerminationGracePeriod: 10 * s}})
		h.probes(map[string]probe.Handler{"web": live})
		h.sleep(time.Minute)
		h.expectText(h.expect("web", "web-1", probe.Running, "").Detail, "exit status 3")
		live.setFailing(true)
		h.sleep(5 * s)
		if got := h.expect("web", "web-1", probe.Running, probe.ReasonEnding).Detail; !regexp.MustCompile(`^liveness failed \(test.failing\), it has 10s to exit from 00:01:\d\dZ on$`).MatchString(got) {
			t.Errorf("detail %q", got)
		}
	})
}

func TestARestartThatFailsIsGivenUpAtOnce(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.apply(map[string]restart.Unit{"web": {Driver: &refusing{external: external{newDriver("web", healthy)}}}})
		var details []string
		for range 2 {
			h.sleep(20 * time.Millisecond)
			h.operate(h.control.Restart, "web")
			in := h.expect("web", "web-0", probe.Running, "")
			h.expectText(in.Detail, "not restarted as requested at 2000-01-01T00:00:00.0")
			h.expectText(in.Detail, "Z: exit status 3")
			details = append(details, in.Detail)
		}
		if details[0] == details[1] {
			t.Errorf("two failures cannot be told apart: %s", details[0])
		}
	})
}

// An instance that keeps running after its restart has failed, first for a probe and then for an operator, exits like
// any other once the probe has recovered: its policy starts no other one.
func TestAFailedRestartIsForgottenWithTheFailure(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d, live := newDriver("web", func(int) behavior { return behavior{ignoresEnd: true, exitsAfter: 10 * time.Minute} }), new(fakeHandler)
		h.probes(map[string]probe.Handler{"web": live})
		h.apply(map[string]restart.Unit{"web": {Driver: d, Policy: restart.OnFailure, TerminationGracePeriod: 5 * s}})
		live.setFailing(true)
		h.sleep(5 * s)
		h.expect("web", "web-0", probe.Running, probe.ReasonEnding)
		h.operate(h.control.Restart, "web")
		live.setFailing(false)
		h.sleep(time.Minute)
		h.expect("web", "web-0", probe.Running, "")
		h.sleep(10 * time.Minute)
		h.expect("web", "web-0", probe.Gone, probe.ReasonCompleted)
	})
}

func TestWhatIsNotDrivenCannotBeOperated(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.apply(map[string]restart.Unit{"probed": {}})
		for name, do := range map[string]func(target, by string) (bool, error){"Stop": h.control.Stop, "Start": h.control.Start, "Restart": h.control.Restart} {
			if changed, err := do("probed", "alice"); changed || err != restart.ErrNotDriven {
				t.Errorf("%s: %v, %v", name, changed, err)
			}
			if changed, err := do("missing", "alice"); changed || err != restart.ErrNoTarget {
				t.Errorf("%s: %v, %v", name, changed, err)
			}
		}
	})
}
