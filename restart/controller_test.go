package restart_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

func TestInvalidUnitIsRejectedWithAllOthers(t *testing.T) {
	for field, u := range map[string]restart.Unit{
		"restart_policy":           {Policy: 9},
		"oneshot":                  {Oneshot: true},
		"termination_grace_period": {TerminationGracePeriod: -1},
		"back_off.initial":         {BackOff: restart.BackOff{Initial: -1}},
		"back_off.max":             {BackOff: restart.BackOff{Max: -1}},
		"back_off.reset":           {BackOff: restart.BackOff{Reset: 10 * probe.MaxDuration}},
	} {
		t.Run(field, func(t *testing.T) {
			inBubble(t, restart.Budget{}, func(h *harness) {
				good := newDriver("good", healthy)
				err := h.control.Apply(map[string]restart.Unit{"bad": u, "good": {Driver: good}})
				if wrong := (*probe.FieldError)(nil); !errors.As(err, &wrong) || wrong.Field != field {
					t.Errorf("got %v, want an error about %s", err, field)
				}
				h.expectText(err.Error(), `target "bad": `+field)
				h.sleep(time.Second)
				h.expectTimes("good began at", good.starts())
			})
		})
	}
}

func TestUnitNeedsAValidTargetName(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		if err := h.control.Apply(map[string]restart.Unit{"": {}}); err == nil {
			t.Error("no error")
		}
	})
}

func TestATakeOverOfSomeUnitsLeavesTheOthers(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		kept, gone, fresh := newDriver("kept", healthy), newDriver("gone", healthy), newDriver("fresh", healthy)
		h.apply(map[string]restart.Unit{"kept": {Driver: kept}, "gone": {Driver: gone}, "static": {}, "ended": {}})
		h.sleep(time.Second)
		if err := h.control.TakeOver(map[string]restart.Unit{"fresh": {Driver: fresh}, "more": {}}, []string{"gone", "ended", "unknown"}, nil); err != nil {
			t.Fatal(err)
		}
		h.sleep(time.Minute)
		h.expectTimes("kept began at", kept.starts(), 0)
		h.expectTimes("gone began at", gone.starts(), 0)
		h.expectTimes("fresh began at", fresh.starts(), time.Second)
		for target, phase := range map[string]probe.Phase{
			"kept": probe.Running, "fresh": probe.Running, "static": probe.Running, "more": probe.Running,
			"gone": probe.Absent, "ended": probe.Absent,
		} {
			if in := h.instance(target); in.Phase != phase {
				t.Errorf("%s is %v, want %v", target, in.Phase, phase)
			}
		}
	})
}

func TestAStaticUnitIsReportedAgain(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
		h.apply(map[string]restart.Unit{"web": {}})
		h.sleep(time.Minute)
		h.probes(nil) // the engine discards the instance
		h.probes(map[string]probe.Handler{"web": &fakeHandler{}})
		h.apply(map[string]restart.Unit{"web": {}})
		h.sleep(time.Minute)
		h.expect("web", "static", probe.Running, "")
	})
}

func TestUnitsOfWhichOneIsInvalidChangeNothing(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		d := newDriver("web", healthy)
		h.apply(only(d))
		err := h.control.Apply(map[string]restart.Unit{"bad": {TerminationGracePeriod: -1}})
		if err == nil {
			t.Error("no error")
		}
		h.sleep(time.Minute)
		if in := h.instance("web"); in.Phase != probe.Running {
			t.Errorf("web is %v", in.Phase)
		}
	})
}

func TestInvalidBudgetIsRejected(t *testing.T) {
	for field, b := range map[string]restart.Budget{
		"restart_budget.max":   {Max: -1, Per: time.Minute},
		"restart_budget.share": {Share: 1.5, Per: time.Minute},
		"restart_budget.min":   {Max: 1, Min: 1, Per: time.Minute},
		"restart_budget.per":   {Max: 1},
	} {
		_, err := restart.New(restart.Config{Engine: engine.New(engine.Config{}), Budget: b})
		if wrong := (*probe.FieldError)(nil); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
}

func TestControllerNeedsAnEngine(t *testing.T) {
	if _, err := restart.New(restart.Config{}); err == nil {
		t.Error("no error")
	}
}

func TestRunIsCalledOnce(t *testing.T) {
	inBubble(t, restart.Budget{}, func(h *harness) {
		h.sleep(time.Second)
		if err := h.control.Run(t.Context()); err == nil {
			t.Error("no error")
		}
	})
}

func TestPolicyTextRoundTrips(t *testing.T) {
	for _, p := range []restart.Policy{restart.Always, restart.OnFailure, restart.Never} {
		text, _ := p.MarshalText()
		var back restart.Policy
		if err := back.UnmarshalText(text); err != nil || back != p {
			t.Errorf("%s became %v (%v)", text, back, err)
		}
	}
	err := new(restart.Policy).UnmarshalText([]byte("sometimes"))
	if err == nil || err.Error() != `restart_policy is "sometimes"; use always, on_failure or never` {
		t.Errorf("got %v", err)
	}
}

// A target without probes is known to the engine before its supervisor has started its instance.
func TestTargetsAreAnnouncedBeforeTheirInstancesStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, restart.Budget{})
		h.probes(map[string]probe.Handler{"probed": &fakeHandler{}})
		h.apply(map[string]restart.Unit{"web": {Driver: newDriver("web", healthy)}, "other": {Driver: newDriver("other", healthy)}, "probed": {Driver: newDriver("probed", healthy)}})
		h.control.Announce()
		h.expect("web", "none", probe.Waiting, "")
		h.expect("probed", "", probe.Absent, "") // known to the engine by its probes
		if status, _ := h.engine.Target("other"); status.State != probe.StateStarting || len(h.engine.Records().History("other")) > 0 {
			t.Errorf("an announced target is %v", status.State)
		}
		h.apply(map[string]restart.Unit{"web": {Driver: newDriver("web", healthy)}})
		if _, known := h.engine.Target("other"); known {
			t.Error("a target that is removed before it has a supervisor stays")
		}
		ctx, stop := context.WithCancel(t.Context())
		go func() { h.ended <- h.control.Run(ctx) }()
		h.sleep(time.Second)
		h.control.Announce()
		h.expect("web", "web-0", probe.Running, "")
		stop()
		h.control.Kill()
		if err := <-h.ended; err != nil {
			t.Error(err)
		}
	})
}
