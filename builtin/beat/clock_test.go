package beatprobe

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// daily is a registry whose target "backup" sends a beat each day, on a machine of which a test says
// how long it was suspended.
func daily(t *testing.T, suspended *time.Duration) (*Registry, *Handler) {
	r := NewRegistry()
	r.clock.suspended, r.clock.total = func() time.Duration { return *suspended }, 0
	h, err := r.New(Config{Every: 24 * time.Hour, Grace: time.Hour, Token: "correct-horse-battery"})
	if err != nil {
		t.Fatal(err)
	}
	r.Apply(probe.Set{{Target: "backup", Kind: probe.Readiness}: {Handler: h}})
	return r, h
}

func TestABeatThatCameWhileTheMachineWasSuspendedIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended time.Duration
		r, h := daily(t, &suspended)
		beat := func() {
			if err := r.Beat("backup", "correct-horse-battery", netip.Addr{}, Report{Status: OK}); err != nil {
				t.Fatal(err)
			}
		}
		look := func(want probe.Outcome) {
			t.Helper()
			r.look()
			if res := h.Probe(t.Context(), probe.Target{Name: "backup"}); res.Outcome != want {
				t.Errorf("the outcome is %v: %s, want %v", res.Outcome, res.Detail, want)
			}
		}
		beat()
		look(probe.Success)
		run := func(d time.Duration) { // looks, as Run does
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(margin) {
				r.look()
			}
		}
		run(20 * time.Hour)
		suspended = 8 * time.Hour // with the time of the next beat in it
		look(probe.Unknown)
		run(5 * time.Hour)
		look(probe.Unknown) // 25 hours without the suspension
		run(14 * time.Hour)
		beat() // the one after
		look(probe.Success)
	})
}

func TestTimesBeforeASuspensionStayWhatTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended time.Duration
		c := newClock()
		c.suspended, c.total = func() time.Duration { return suspended }, 0
		before := time.Now()
		shown := c.now()
		for range maxSuspensions + 3 {
			time.Sleep(time.Minute)
			suspended += time.Hour
			c.now()
		}
		if len(c.suspensions) != maxSuspensions {
			t.Errorf("%d suspensions are remembered", len(c.suspensions))
		}
		after := time.Now()
		if got := c.at(after); got != c.now() {
			t.Errorf("now is %v from now", time.Duration(got-c.now()))
		}
		time.Sleep(time.Minute)
		now := c.now()
		suspended += time.Hour
		if got := c.now(); got != now+int64(time.Hour) {
			t.Errorf("a suspension of an hour takes %v", time.Duration(got-now))
		}
		if got := c.at(after); got != now-int64(time.Minute) {
			t.Errorf("a time a minute before the suspension is %v before it", time.Duration(now-got))
		}
		if got := c.at(before); got < shown {
			t.Errorf("a time before all is %v too early", time.Duration(shown-got))
		}
	})
}

func TestSmallErrorsOfMeasurementAreNoSuspensions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended time.Duration
		c := newClock()
		c.suspended, c.total = func() time.Duration { return suspended }, 0
		now := c.now()
		suspended = suspensionTolerance - 1
		if got := c.now(); got != now {
			t.Errorf("the clock went on by %v", time.Duration(got-now))
		}
	})
}

func TestTheTimeOfSuspensionIsMeasured(t *testing.T) {
	if first, second := suspended(), suspended(); second-first > time.Second || first-second > time.Second {
		t.Errorf("the machine was suspended for %v, then for %v", first, second)
	}
}
