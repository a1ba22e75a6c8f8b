package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func next(t *testing.T, sub *engine.Subscription) engine.Status {
	t.Helper()
	st, err := sub.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestASubscriberGetsExistingProbesAndThenChanges(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{liveness: with(says(probe.Success)), readiness: with(says(probe.Success))})
		sub := e.Subscribe()
		defer sub.Close()
		if a, b := next(t, sub), next(t, sub); a.ID != readiness || b.ID != liveness {
			t.Errorf("the snapshot came as %v, %v", a.ID, b.ID)
		}
		e.Report(instance("a"))
		pass(time.Minute)
		for range 2 {
			if st := next(t, sub); st.Verdict != probe.Passing {
				t.Errorf("got %+v", st)
			}
		}
		apply(t, e, probe.Set{readiness: with(says(probe.Failure))})
		seen := map[probe.ID]bool{}
		for range 1 {
			st := next(t, sub)
			seen[st.ID] = st.Removed
		}
		if !seen[liveness] {
			t.Errorf("the removal was not delivered: %v", seen)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if st, err := sub.Next(ctx); err == nil {
			t.Errorf("nothing had changed, but got %+v", st)
		}
	})
}

func TestASlowSubscriberNeverSlowsProbing(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		odd := 0
		flip := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			odd++
			return probe.Result{Outcome: []probe.Outcome{probe.Failure, probe.Success}[odd%2]}
		})
		p := with(flip)
		p.Rule.FailureThreshold = 1
		apply(t, e, probe.Set{readiness: p})
		sub := e.Subscribe()
		defer sub.Close()
		e.Report(instance("a"))
		pass(1000 * time.Second)
		if st := next(t, sub); st.Changes < 90 {
			t.Errorf("got %+v, want the latest of about a hundred changes", st)
		}
		synctest.Wait()
	})
}

// A removal need not be delivered if the subscriber never received the probe.
func TestAnUnreadSubscriptionDoesNotKeepRemovedNames(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{readiness: with(says(probe.Success))})
		sub := e.Subscribe()
		defer sub.Close()
		next(t, sub)
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before := heap()
		h := says(probe.Success)
		for round := range 100 {
			set := probe.Set{}
			for n := range 200 {
				set[probe.ID{Target: fmt.Sprintf("%s/%d/%d", strings.Repeat("x", 200), round, n), Kind: probe.Readiness}] = with(h)
			}
			apply(t, e, set)
		}
		apply(t, e, probe.Set{liveness: with(h)})
		pass(time.Minute) // the warning about targets without an instance has been logged
		if after := heap(); after > before+1<<20 {
			t.Errorf("%d bytes are kept", after-before)
		}
		removed, added := next(t, sub), next(t, sub)
		if removed.ID != readiness || !removed.Removed || added.ID != liveness || added.Removed {
			t.Errorf("got %+v and %+v", removed, added)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		if st, err := sub.Next(ctx); err == nil {
			t.Errorf("nothing else is there, but got %+v", st)
		}
	})
}

func TestASubscriberLearnsThatAProbeWasAddedAgain(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		sub := e.Subscribe()
		defer sub.Close()
		one := probe.Set{readiness: with(says(probe.Success))}
		apply(t, e, one)
		apply(t, e, probe.Set{})
		apply(t, e, one)
		if st := next(t, sub); st.ID != readiness || st.Removed {
			t.Errorf("got %+v", st)
		}
		apply(t, e, probe.Set{})
		apply(t, e, one)
		apply(t, e, probe.Set{})
		if st := next(t, sub); st.ID != readiness || !st.Removed {
			t.Errorf("got %+v", st)
		}
	})
}
