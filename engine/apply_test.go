package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func TestApplyLeavesAnUnchangedProbeAlone(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Failure)
		set := probe.Set{readiness: with(h), liveness: with(h)}
		if n := apply(t, e, set); n != (engine.Changes{Added: 2}) {
			t.Errorf("first: %+v", n)
		}
		e.Report(instance("a"))
		pass(15 * time.Second)
		before := status(t, e, liveness)
		if n := apply(t, e, set); n != (engine.Changes{Kept: 2}) {
			t.Errorf("second: %+v", n)
		}
		if after := status(t, e, liveness); after != before {
			t.Errorf("was %+v, is %+v", before, after)
		}
	})
}

func TestEqualRevisionsAreTheSameHandler(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		ok := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") })
		p := with(ok)
		apply(t, e, probe.Set{readiness: p})
		if n := apply(t, e, probe.Set{readiness: p}); n.Replaced != 1 {
			t.Errorf("functions cannot be compared: %+v", n)
		}
		p.Revision = "1"
		apply(t, e, probe.Set{readiness: p})
		if n := apply(t, e, probe.Set{readiness: p}); n.Kept != 1 {
			t.Errorf("equal revisions: %+v", n)
		}
		p.Revision = "2"
		if n := apply(t, e, probe.Set{readiness: p}); n.Replaced != 1 {
			t.Errorf("another revision: %+v", n)
		}
	})
}

func TestAnotherThresholdKeepsTheRun(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		p := with(says(probe.Failure))
		p.Rule.FailureThreshold = 100
		apply(t, e, probe.Set{liveness: p})
		e.Report(instance("a"))
		pass(41 * time.Second)
		before := status(t, e, liveness)
		p.Rule.FailureThreshold = 5
		if n := apply(t, e, probe.Set{liveness: p}); n.Updated != 1 {
			t.Errorf("got %+v", n)
		}
		after := status(t, e, liveness)
		if after.Run != before.Run || !after.Next.Equal(before.Next) {
			t.Errorf("was %+v, is %+v", before, after)
		}
		pass(10 * time.Second)
		want(t, e, liveness, probe.Failing)
	})
}

func TestAnotherPeriodMovesTheNextAttempt(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		p := with(h)
		p.Rule.Period = time.Hour
		apply(t, e, probe.Set{liveness: p})
		e.Report(instance("a"))
		pass(time.Second)
		p.Rule.Period = time.Second
		apply(t, e, probe.Set{liveness: p})
		n := len(h.attempts())
		pass(10 * time.Second)
		if got := len(h.attempts()) - n; got != 10 {
			t.Errorf("%d attempts in ten seconds, want 10", got)
		}
	})
}

func TestAReplacedProbeStartsAgainAndKeepsItsVerdict(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		old := says(probe.Success)
		p := with(old)
		p.Rule.SuccessThreshold = 2
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("a"))
		pass(time.Minute)
		p.Handler = says(probe.Failure)
		p.Handler.(*script).take(500 * time.Millisecond)
		if n := apply(t, e, probe.Set{readiness: p}); n.Replaced != 1 {
			t.Errorf("got %+v", n)
		}
		want(t, e, readiness, probe.Passing)
		if old.closed != 1 {
			t.Errorf("the old handler was closed %d times", old.closed)
		}
		pass(time.Second)
		if st := status(t, e, readiness); st.Verdict != probe.Passing || st.Run != 1 || st.Last != probe.Failure {
			t.Errorf("after one failure: %+v", st)
		}
		pass(time.Minute)
		want(t, e, readiness, probe.Failing)
	})
}

func TestTheResultOfARemovedOrReplacedProbeIsDropped(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		slow := says(probe.Success)
		slow.take(time.Hour)
		p := with(slow)
		p.Rule.Timeout = 2 * time.Hour
		apply(t, e, probe.Set{readiness: p, liveness: p})
		e.Report(instance("a"))
		pass(time.Second)
		gauge, _ := e.Watch(liveness)
		p.Handler = says(probe.Failure)
		if n := apply(t, e, probe.Set{readiness: p}); n.Replaced != 1 || n.Removed != 1 {
			t.Errorf("got %+v", n)
		}
		if st := e.Stats(); st.Dropped != 2 || st.InFlight != 0 {
			t.Errorf("attempts were not cancelled: %+v", st)
		}
		if _, ok := e.Status(liveness); ok || gauge.Verdict() != probe.Undecided {
			t.Error("a removed probe is still there")
		}
		if slow.closed != 1 {
			t.Errorf("a shared handler was closed %d times", slow.closed)
		}
	})
}

func TestATargetWithoutProbesIsRemoved(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		in := instance("a")
		in.Managed = false
		apply(t, e, probe.Set{readiness: with(says(probe.Success))})
		e.Report(in)
		apply(t, e, probe.Set{})
		if _, ok := e.Target("web"); ok {
			t.Error("an endpoint without probes is still there")
		}
		e.Report(instance("b")) // a process goes on to be supervised
		if tg, ok := e.Target("web"); !ok || !tg.Ready {
			t.Errorf("got %+v", tg)
		}
		gone := instance("b")
		gone.Phase = probe.Gone
		e.Report(gone)
		if _, ok := e.Target("web"); ok {
			t.Error("a target that is gone and has no probes is still there")
		}
	})
}

func TestRemovingTheLastStartupProbeStartsTheInstance(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		r := says(probe.Success)
		apply(t, e, probe.Set{startup: with(says(probe.Unknown)), readiness: with(r)})
		e.Report(instance("a"))
		pass(time.Minute)
		if len(r.attempts()) != 0 {
			t.Error("attempted before the start")
		}
		apply(t, e, probe.Set{readiness: with(r)})
		synctest.Wait()
		if tg, _ := e.Target("web"); !tg.Ready {
			t.Errorf("got %+v", tg)
		}
	})
}
