package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// waking is a script that wakes its probe.
type waking struct {
	*script
	wake  func()
	eager bool // wakes it in each attempt
}

func (w *waking) ProbeWaking(ctx context.Context, t probe.Target, wake func()) probe.Result {
	w.wake = wake
	if w.eager {
		wake()
	}
	return w.Probe(ctx, t)
}

func TestAHandlerCanWakeItsProbe(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := &waking{script: says(probe.Success)}
		apply(t, e, probe.Set{readiness: with(h)})
		e.Report(instance("a"))
		pass(30 * time.Second)
		turn, before := status(t, e, readiness).Next, len(h.attempts())
		pass(time.Until(turn) - 2*time.Second) // far enough from both its turns
		h.wake()
		synctest.Wait()
		if got := len(h.attempts()); got != before+1 {
			t.Errorf("%d attempts, want one more than %d", got, before)
		}
		if next := status(t, e, readiness).Next; next.Sub(turn)%(10*time.Second) != 0 {
			t.Errorf("the phase moved from %v to %v", turn, next)
		}
		apply(t, e, probe.Set{})
		h.wake() // it is gone: nothing happens
		pass(time.Minute)
		if got := len(h.attempts()); got != before+1 {
			t.Errorf("%d attempts, want none after the probe is gone", got-before-1)
		}
	})
}

func TestAnEagerHandlerIsBounded(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := &waking{script: says(probe.Success), eager: true}
		apply(t, e, probe.Set{readiness: with(h)})
		e.Report(instance("a"))
		pass(time.Second)
		if got, most := len(h.attempts()), int(time.Second/probe.MinPeriod)+1; got > most || got < most/2 {
			t.Errorf("%d attempts in a second, want at most %d", got, most)
		}
	})
}
