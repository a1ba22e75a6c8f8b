// Package followtest provides an engine whose targets another engine under test can follow.
package followtest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Others is an engine that never runs. A test sets the verdicts of its probes.
type Others struct {
	*engine.Engine
	t    testing.TB
	rule probe.Rule
}

// New returns an Others with probes that all have the given rule and the verdict passing.
func New(t testing.TB, rule probe.Rule, ids ...probe.ID) *Others {
	t.Helper()
	o := &Others{engine.New(engine.Config{NoIsolationCheck: true}), t, rule.WithDefaults()}
	set := probe.Set{}
	for _, id := range ids {
		set[id] = probe.Probe{Rule: rule, HandlerName: "test", Handler: neverAttempted{}}
	}
	if _, err := o.Apply(set); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		o.Say(id, probe.Passing)
	}
	return o
}

// Say sets the verdict of a probe, as another engine would publish it now.
func (o *Others) Say(id probe.ID, v probe.Verdict) {
	o.t.Helper()
	in := probe.Instance{Target: id.Target, ID: probe.StaticID, Phase: probe.Running, Since: time.Now()}
	if st, ok := o.Target(id.Target); ok && st.Instance.ID == in.ID {
		in.Since = st.Instance.Since
	}
	m := engine.Memory{State: verdict.State{Instance: in.ID, Verdict: v, Last: probe.Success, Run: o.rule.SuccessThreshold}, Since: time.Now(), Started: true}
	if v == probe.Failing {
		m.State.Last, m.State.Run = probe.Failure, o.rule.FailureThreshold
	}
	if err := o.Admin().Restate(in, engine.Restated{Memories: map[probe.ID]engine.Memory{id: m}}); err != nil {
		o.t.Fatal(err)
	}
}

// Follow makes an engine follow the targets of this one as dependencies until stop is called.
func (o *Others) Follow(e *engine.Engine, delay time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { e.Admin().FollowDependencies(ctx, o.Engine, delay) })
	return func() { cancel(); following.Wait() }
}

// neverAttempted is the handler of the probes of Others.
type neverAttempted struct{}

// Probe implements probe.Handler.
func (neverAttempted) Probe(context.Context, probe.Target) probe.Result { return probe.Result{} }
