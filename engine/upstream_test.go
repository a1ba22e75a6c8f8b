package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// This file covers the cases of upstream's tests that need a running worker or its cache of results; tests/upstream.md has both
// side by side.

// each returns a probe that makes an attempt each second, and which one attempt decides.
func each(h probe.Handler) probe.Probe {
	p := with(h)
	p.Rule = probe.Rule{Period: time.Second, FailureThreshold: 1}
	return p
}

func TestUpstreamCleanUp(t *testing.T) {
	for _, id := range []probe.ID{startup, readiness, liveness} {
		t.Run(id.Kind.String(), func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				h := says(probe.Success)
				apply(t, e, probe.Set{id: each(h)})
				e.Report(instance("a"))
				pass(time.Second)
				want(t, e, id, probe.Passing)
				gauge, _ := e.Watch(id)
				for range 10 { // at any rate
					apply(t, e, nil)
				}
				if st, ok := e.Status(id); ok || gauge.Verdict() != probe.Undecided {
					t.Errorf("the probe is still there: %+v", st)
				}
				before := len(h.attempts())
				pass(time.Minute)
				if n := len(h.attempts()); n != before || h.closed != 1 {
					t.Errorf("the handler was asked %d times more, and closed %d times", n-before, h.closed)
				}
			})
		})
	}
}

func TestUpstreamCacheOperations(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		if st, ok := e.Status(liveness); ok {
			t.Errorf("a probe that was not applied is %+v", st)
		}
		apply(t, e, probe.Set{liveness: each(says(probe.Success))})
		e.Report(instance("a"))
		pass(time.Second)
		want(t, e, liveness, probe.Passing)
		apply(t, e, nil)
		if st, ok := e.Status(liveness); ok {
			t.Errorf("the removed probe is %+v", st)
		}
	})
}

func TestUpstreamUpdates(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		foo, bar := says(probe.Success), says(probe.Failure)
		apply(t, e, probe.Set{named(readiness, "foo"): each(foo), named(readiness, "bar"): each(bar)})
		sub := e.Subscribe()
		defer sub.Close()
		expect := func(step string, want map[string]probe.Verdict) {
			t.Helper()
			pass(2 * time.Second)
			for len(want) > 0 {
				st := next(t, sub)
				if v, ok := want[st.ID.Name]; !ok || v != st.Verdict {
					t.Errorf("%s: %v is %v, want one of %v", step, st.ID, st.Verdict, want)
				}
				delete(want, st.ID.Name)
			}
			expectNoUpdate(t, step, sub)
		}
		expect("before an instance", map[string]probe.Verdict{"foo": probe.Undecided, "bar": probe.Undecided})
		e.Report(instance("a"))
		expect("new verdicts", map[string]probe.Verdict{"foo": probe.Passing, "bar": probe.Failing})
		expect("equal ones", nil)
		foo.say(probe.Failure)
		expect("one that has changed", map[string]probe.Verdict{"foo": probe.Failing})
		bar.say(probe.Success)
		expect("the other one", map[string]probe.Verdict{"bar": probe.Passing})
	})
}

// expectNoUpdate checks that no change is pending for a subscriber.
func expectNoUpdate(t *testing.T, step string, sub *engine.Subscription) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if st, err := sub.Next(ctx); err == nil {
		t.Errorf("%s: nothing had changed, but %v is %v", step, st.ID, st.Verdict)
	}
}
