package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// counting is a StatefulHandler that records the handlers that it makes, and for each of them its attempts and targets. An attempt
// with the configured handler itself fails.
type counting struct {
	parent   *counting
	made     []*counting // by ForProbe, in order
	attempts int
	targets  map[string]bool
	closed   int
}

func (c *counting) ForProbe() probe.Handler {
	own := &counting{parent: c, targets: map[string]bool{}}
	c.made = append(c.made, own)
	return own
}

func (c *counting) Probe(_ context.Context, t probe.Target) probe.Result {
	if c.parent == nil {
		return probe.Fail("test.shared", "an attempt was made with the configured handler")
	}
	c.attempts++
	c.targets[t.Name] = true
	return probe.Succeed("")
}

func (c *counting) Close() error { c.closed++; return nil }

func TestEachProbeHasAStatefulHandlerOfItsOwn(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := &counting{}
		set := probe.Set{readiness: with(h), liveness: with(h), {Target: "db", Kind: probe.Liveness}: with(h)}
		apply(t, e, set)
		e.Report(instance("a"))
		e.Report(probe.Instance{Target: "db", ID: "a", Phase: probe.Running, Since: time.Now()})
		pass(time.Minute)
		if len(h.made) != len(set) {
			t.Fatalf("ForProbe was called %d times for %d probes", len(h.made), len(set))
		}
		for i, own := range h.made {
			if own.attempts < 5 || len(own.targets) != 1 {
				t.Errorf("handler %d made %d attempts at %d targets", i, own.attempts, len(own.targets))
			}
		}
		want(t, e, readiness, probe.Passing)
		want(t, e, liveness, probe.Passing)
	})
}

func TestAStatefulHandlerLivesAsLongAsItsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		e, done := engine.New(engine.Config{}), make(chan error)
		go func() { done <- e.Run(ctx) }()
		h := &counting{}
		set := probe.Set{readiness: with(h), liveness: with(h)}
		apply(t, e, set)
		e.Report(instance("a"))
		first := append([]*counting(nil), h.made...)
		check := func(what string, made int, closed ...int) {
			t.Helper()
			if len(h.made) != made {
				t.Errorf("%s: ForProbe was called %d times, want %d", what, len(h.made), made)
			}
			for i, n := range closed {
				if h.made[i].closed != n {
					t.Errorf("%s: handler %d was closed %d times, want %d", what, i, h.made[i].closed, n)
				}
			}
		}
		if n := apply(t, e, set); n.Kept != 2 {
			t.Errorf("an unchanged set: %+v", n)
		}
		check("unchanged", 2, 0, 0)
		ruled := with(h)
		ruled.Rule.FailureThreshold = 7
		set[readiness], set[liveness] = ruled, ruled
		if n := apply(t, e, set); n.Updated != 2 {
			t.Errorf("another rule: %+v", n)
		}
		check("another rule", 2, 0, 0)
		moved := ruled
		moved.Target.Address = "192.0.2.7"
		set[readiness], set[liveness] = moved, moved
		if n := apply(t, e, set); n.Replaced != 2 {
			t.Errorf("another address: %+v", n)
		}
		check("another address", 4, 1, 1, 0, 0)
		bad := moved
		bad.Handler, bad.Rule.SuccessThreshold = &counting{parent: h}, -1
		if _, err := e.Apply(probe.Set{readiness: moved, liveness: bad, named(startup, "new"): with(h)}); err == nil {
			t.Error("a bad rule was applied")
		}
		check("refused set", 4, 1, 1, 0, 0)
		apply(t, e, probe.Set{})
		check("removed", 4, 1, 1, 1, 1)
		apply(t, e, probe.Set{readiness: with(h)})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		check("after Run", 5, 1, 1, 1, 1, 1)
		if h.closed != 0 || first[0] != h.made[0] {
			t.Errorf("the configured handler was closed %d times", h.closed)
		}
	})
}

func TestOnceUsesAStatefulHandlerOfItsOwn(t *testing.T) {
	h := &counting{}
	for range 2 {
		if res := engine.Once(t.Context(), with(h)); res.Outcome != probe.Success {
			t.Errorf("got %+v", res)
		}
	}
	for _, own := range h.made {
		if own.attempts != 1 || own.closed != 1 {
			t.Errorf("a handler made %d attempts and was closed %d times", own.attempts, own.closed)
		}
	}
}
