package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// A moving target is in both engines of a Union: the receiving engine may have its verdicts before its instance, and the other
// engine has its instance longer than its probes.
func TestATargetThatMovesHasVerdictsInOneEngineOfAUnion(t *testing.T) {
	running := probe.Instance{Phase: probe.Running}
	for name, of := range map[string]struct {
		st   TargetStatus
		want bool
	}{
		"decided":         {TargetStatus{Probes: []Status{{}}, Gateway: probe.GatewayReady, Instance: running}, true},
		"no probes":       {TargetStatus{Gateway: probe.GatewayReady, Instance: running}, false},
		"undecided":       {TargetStatus{Probes: []Status{{}}, Instance: running}, false},
		"no instance yet": {TargetStatus{Probes: []Status{{}}, Gateway: probe.GatewayDown, Instance: probe.Instance{Phase: probe.Absent}}, false},
	} {
		if has := of.st.hasVerdicts(); has != of.want {
			t.Errorf("%s: %v", name, has)
		}
	}
}

// Changes in one engine do not keep a slow reader from those in the other, and each change wakes a reader.
func TestASubscriptionToAUnionHasTheChangesOfBothEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, others := New(Config{NoIsolationCheck: true}), New(Config{NoIsolationCheck: true})
		both := NewUnion(own, others)
		targets, probes := both.SubscribeTargets(), both.Subscribe()
		defer targets.Close()
		defer probes.Close()
		never := probe.Probe{Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Result{} })}
		add := func(e *Engine, target string) {
			if _, err := e.Change(Change{Set: probe.Set{{Target: target, Kind: probe.Readiness}: never}}); err != nil {
				t.Fatal(err)
			}
		}
		add(others, "b")
		for isNamed, n := map[string]bool{}, 0; !isNamed["b"] || !isNamed["a"]; n++ {
			add(own, "a")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			st, err := targets.Next(ctx)
			cancel()
			if err != nil || n > 100 {
				t.Fatalf("after %d changes only %v have come: %v", n, isNamed, err)
			}
			isNamed[st.Target] = true
		}
		for _, want := range []string{"a", "b"} {
			st, err := probes.Next(t.Context())
			if err != nil || st.Removed || st.ID.Target != "a" && st.ID.Target != "b" {
				t.Errorf("got %v, %v; want %s or the other one", st.ID, err, want)
			}
		}
		add(own, "b") // the target moves
		if _, err := others.Change(Change{Remove: []probe.ID{{Target: "b", Kind: probe.Readiness}}}); err != nil {
			t.Fatal(err)
		}
		for st, ok := targets.Poll(); ok; st, ok = targets.Poll() {
			if st.Removed {
				t.Errorf("%s was removed", st.Target)
			}
		}
		if both.IsOther("b") || both.Count(t.Context(), Filter{}) != 2 {
			t.Errorf("b is of others, or there are %d targets", both.Count(t.Context(), Filter{}))
		}
	})
}
