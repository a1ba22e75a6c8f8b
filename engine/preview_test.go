package engine_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

func TestAPreviewSaysWhatTheChangeDoesAndDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{})
		one := func(target, address, revision string, period time.Duration) (probe.ID, probe.Probe) {
			return probe.ID{Target: target, Kind: probe.Readiness}, probe.Probe{
				Rule: probe.Rule{Period: period}, Target: probe.Target{Address: address}, HandlerName: "x", Revision: revision,
				Handler: probe.HandlerFunc(nil),
			}
		}
		set := func(add func(put func(target, address, revision string, period time.Duration))) probe.Set {
			s := probe.Set{}
			add(func(target, address, revision string, period time.Duration) {
				id, p := one(target, address, revision, period)
				s[id] = p
			})
			return s
		}
		before := set(func(put func(string, string, string, time.Duration)) {
			put("gone", "10.0.0.1", "1", time.Second)
			put("kept", "10.0.0.1", "1", time.Second)
			put("moved", "10.0.0.1", "1", time.Second)
			put("slower", "10.0.0.1", "1", time.Second)
			put("other", "10.0.0.1", "1", time.Second)
		})
		after := func() probe.Set {
			return set(func(put func(string, string, string, time.Duration)) {
				put("kept", "10.0.0.1", "1", time.Second)
				put("moved", "10.0.0.2", "1", time.Second)
				put("new", "10.0.0.1", "1", time.Second)
				put("other", "10.0.0.1", "2", time.Second)
				put("slower", "10.0.0.1", "1", time.Minute)
			})
		}
		if _, err := e.Apply(before); err != nil {
			t.Fatal(err)
		}
		want := []engine.ProbeChange{
			{ID: probe.ID{Target: "gone", Kind: probe.Readiness}, Action: engine.ProbeRemoved},
			{ID: probe.ID{Target: "moved", Kind: probe.Readiness}, Action: engine.ProbeReplaced, Moved: true},
			{ID: probe.ID{Target: "new", Kind: probe.Readiness}, Action: engine.ProbeAdded},
			{ID: probe.ID{Target: "other", Kind: probe.Readiness}, Action: engine.ProbeReplaced},
			{ID: probe.ID{Target: "slower", Kind: probe.Readiness}, Action: engine.ProbeUpdated},
		}
		for range 2 { // the first one has changed nothing
			got, err := preview(e, engine.Change{Set: after(), All: true})
			if err != nil || !slices.Equal(got.Probes, want) {
				t.Fatalf("got %+v, %v", got, err)
			}
		}
		invalid := after()
		id, p := one("bad", "10.0.0.1", "1", time.Nanosecond)
		invalid[id] = p
		_, previewErr := preview(e, engine.Change{Set: invalid, All: true})
		if _, err := e.Apply(invalid); err == nil || previewErr == nil || err.Error() != previewErr.Error() {
			t.Errorf("the errors are %v and %v", previewErr, err)
		}
		whole, err := preview(e, engine.Change{Set: after(), All: true})
		if err != nil {
			t.Fatal(err)
		}
		planned, err := e.Plan(engine.Change{Set: after(), All: true})
		if err != nil {
			t.Fatal(err)
		}
		if done := planned.Commit(); done != whole.Changes {
			t.Errorf("Commit has done %+v, and the preview was %+v", done, whole.Changes)
		}
		planned.Discard() // no effect any more
		if left, err := preview(e, engine.Change{Set: after(), All: true}); err != nil || len(left.Probes) > 0 || left.Changes.Kept != 5 {
			t.Errorf("afterwards: %+v, %v", left, err)
		}
	})
}

// preview returns the Preview of a change.
func preview(e *engine.Engine, c engine.Change) (engine.Preview, error) {
	p, err := e.Plan(c)
	if err != nil {
		return engine.Preview{}, err
	}
	defer p.Discard()
	return p.Preview(), nil
}

// stubborn is a stateful handler whose ForProbe panics.
type stubborn struct{ probe.Handler }

func (stubborn) ForProbe() probe.Handler { panic("no handler") }

func TestAHandlerThatPanicsLeavesNoPlanBehind(t *testing.T) {
	e := engine.New(engine.Config{})
	id := probe.ID{Target: "web", Kind: probe.Readiness}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("ForProbe has not panicked")
			}
		}()
		_, _ = e.Apply(probe.Set{id: {Handler: stubborn{}}})
	}()
	if _, err := e.Apply(probe.Set{id: {Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Succeed("") })}}); err != nil {
		t.Error(err)
	}
}
