package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// unobserved returns a probe of a static target.
func unobserved(h probe.Handler) probe.Probe {
	p := with(h)
	p.Target.Static = true
	return p
}

func TestAStaticTargetIsProbedWithoutAReport(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{readiness: unobserved(says(probe.Success))})
		st, _ := e.Target("web")
		if in := st.Instance; !st.Ready || in.ID != probe.StaticID || in.Phase != probe.Running || !in.Since.Equal(time.Now()) {
			t.Errorf("got %+v", st)
		}
		checkGauge(t, e, "web", nil)
		apply(t, e, probe.Set{})
		if _, ok := e.Target("web"); ok {
			t.Error("a target without probes stays")
		}
		pass(time.Minute)
		apply(t, e, probe.Set{readiness: unobserved(says(probe.Success))})
		if st, _ := e.Target("web"); !st.Ready {
			t.Errorf("after it got its probe again: %+v", st)
		}
	})
}

func TestATargetThatBecomesStaticIsProbed(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		apply(t, e, probe.Set{readiness: with(h)})
		pass(time.Minute)
		if st, _ := e.Target("web"); st.Decided {
			t.Errorf("before: %+v", st)
		}
		if changes := apply(t, e, probe.Set{readiness: unobserved(h)}); changes != (engine.Changes{Updated: 1}) {
			t.Errorf("got %+v", changes)
		}
		want(t, e, readiness, probe.Passing)
		before := status(t, e, readiness)
		apply(t, e, probe.Set{readiness: with(h)})
		if after := status(t, e, readiness); after.Verdict != before.Verdict || after.Run != before.Run {
			t.Errorf("it lost its state: %+v, before %+v", after, before)
		}
	})
}

func TestADriversInstanceGoesBeforeTheStaticOne(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		e.Report(instance("a"))
		apply(t, e, probe.Set{readiness: unobserved(says(probe.Success))})
		if st, _ := e.Target("web"); st.Instance.ID != "a" || !st.Ready {
			t.Errorf("got %+v", st)
		}
		e.Report(probe.Instance{Target: "web", ID: "a", Phase: probe.Gone, Since: time.Now()})
		apply(t, e, probe.Set{readiness: unobserved(says(probe.Success)), liveness: unobserved(says(probe.Success))})
		if st, _ := e.Target("web"); st.Instance.Phase != probe.Gone || st.Ready {
			t.Errorf("got %+v", st)
		}
	})
}

func TestAStaticTargetGoesOnWithItsMemory(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		set := probe.Set{readiness: unobserved(h)}
		apply(t, e, set)
		pass(25 * time.Second)
		before := status(t, e, readiness)
		second := successor(t, set, memories(e))
		synctest.Wait()
		if after := status(t, second, readiness); after.Verdict != before.Verdict || after.Run != before.Run || after.Instance != before.Instance {
			t.Errorf("got %+v, want %+v", after, before)
		}
	})
}

func TestAStaticTargetIsAsOldAsItsMemorySays(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := unobserved(says(probe.Success))
		p.Rule.InitialDelay = time.Hour
		set := probe.Set{readiness: p}
		apply(t, e, set)
		pass(2 * time.Hour)
		before, _ := e.Target("web")
		second := successor(t, set, memories(e))
		synctest.Wait()
		if after, _ := second.Target("web"); !after.Instance.Since.Equal(before.Instance.Since) || after.Probes[0].WaitReason != verdict.NotWaiting {
			t.Errorf("got %+v, want %+v", after, before)
		}
	})
}
