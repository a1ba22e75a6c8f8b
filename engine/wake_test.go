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
	eager bool // requests another attempt in each attempt
}

func (w *waking) ProbeWaking(ctx context.Context, t probe.Target, wake func()) probe.Result {
	w.wake = wake
	if w.eager {
		wake()
	}
	return w.Probe(ctx, t)
}

func TestAWakingHandlerCanAskForAnAttempt(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := &waking{script: says(probe.Success)}
		apply(t, e, probe.Set{readiness: with(h)})
		e.Report(instance("a"))
		pass(30 * time.Second)
		regular, before := status(t, e, readiness).Next, len(h.attempts())
		pass(time.Until(regular) - 2*time.Second) // far from both regular times
		h.wake()
		synctest.Wait()
		if got := len(h.attempts()); got != before+1 {
			t.Errorf("%d attempts, want one more than %d", got, before)
		}
		if next := status(t, e, readiness).Next; next.Sub(regular)%(10*time.Second) != 0 {
			t.Errorf("the offset moved from %v to %v", regular, next)
		}
		apply(t, e, probe.Set{})
		h.wake() // the probe was removed: no effect
		pass(time.Minute)
		if got := len(h.attempts()); got != before+1 {
			t.Errorf("%d attempts, want none after the probe is gone", got-before-1)
		}
	})
}

func TestAWakingHandlerIsRateLimited(t *testing.T) {
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
