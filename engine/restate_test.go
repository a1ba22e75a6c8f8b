package engine

import (
	"context"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// TestARestatedTargetIsAsTheOtherEngineHasIt restates a target twice, the second time with another instance.
func TestARestatedTargetIsAsTheOtherEngineHasIt(t *testing.T) {
	e := New(Config{})
	id := probe.ID{Target: "web", Kind: probe.Liveness}
	rule := probe.Rule{Period: time.Second, FailureThreshold: 3}
	never := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
		t.Error("an attempt was made")
		return probe.Result{}
	})
	if _, err := e.Apply(probe.Set{id: {Handler: never, Rule: rule}}); err != nil {
		t.Fatal(err)
	}
	sub := e.SubscribeTargets()
	defer sub.Close()
	since := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	restate := func(instance string, v probe.Verdict, last probe.Outcome, run int32) TargetStatus {
		t.Helper()
		var results map[probe.ID]probe.Result
		if v == probe.Failing {
			results = map[probe.ID]probe.Result{id: probe.Fail("test.sick", "status 503")}
		}
		m := Memory{State: verdict.State{Instance: instance, Verdict: v, Last: last, Run: run}, Since: since, Changes: 7, Started: true, Endpoint: 12345, Handler: 678}
		if err := e.Admin().Restate(probe.Instance{Target: "web", ID: instance, Phase: probe.Running, Since: since, Restarts: 2}, Restated{Memories: map[probe.ID]Memory{id: m}, Results: results}); err != nil {
			t.Fatal(err)
		}
		for {
			st, ok := sub.Poll()
			if !ok {
				break
			}
			if st.Instance.ID != instance || st.Probes[0].Verdict != v {
				t.Errorf("a subscriber saw instance %q with the verdict %v", st.Instance.ID, st.Probes[0].Verdict)
			}
		}
		st, _ := e.Target("web")
		return st
	}
	st := restate("web#1", probe.Failing, probe.Failure, 3)
	if p := st.Probes[0]; st.State != probe.StateFailing || st.Instance.Restarts != 2 || p.Changes != 7 || !p.Since.Equal(since) || !p.Next.IsZero() || p.WaitReason != verdict.NotWaiting {
		t.Errorf("the target is %+v", st)
	}
	if p := st.Probes[0]; st.Cause != (Cause{id, "test.sick", "status 503"}) || !p.ResultAt.Equal(since) || p.Result.Outcome != probe.Failure {
		t.Errorf("it fails because of %+v, by %+v at %v", st.Cause, p.Result, p.ResultAt)
	}
	if n := e.States(); n[probe.StateFailing] != 1 {
		t.Errorf("the states are %v", n)
	}
	if st = restate("web#2", probe.Passing, probe.Success, 1); st.State != probe.StateReady || !st.Ready || st.Cause != (Cause{}) || !st.Probes[0].ResultAt.IsZero() {
		t.Errorf("with its next instance the target is %+v", st)
	}
}

// TestARestatedTargetIsOutOfRotationAsInTheOtherEngine restates an ejected target and a target that is damped in the other
// engine, and then neither. This engine damps one of them.
func TestARestatedTargetIsOutOfRotationAsInTheOtherEngine(t *testing.T) {
	e := New(Config{})
	handler := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Result{} })
	set := probe.Set{}
	for _, name := range []string{"web", "db"} {
		set[probe.ID{Target: name, Kind: probe.Readiness}] = probe.Probe{Handler: handler}
	}
	if _, err := e.Change(Change{Set: set, Dampings: map[string]probe.Damping{"db": {}}}); err != nil {
		t.Fatal(err)
	}
	since := time.Now().Truncate(time.Millisecond)
	penalty := verdict.Penalty{Value: 3000, At: since, Since: since}
	ejection := Ejection{Since: since, Until: since.Add(time.Minute), Reason: "tcp.refused", Detail: "connection refused"}
	for _, c := range []struct {
		name    string
		of      Restated
		state   probe.TargetState
		gateway probe.GatewayState
	}{
		{"web", Restated{Ejections: map[probe.ID]Ejection{{Target: "web", Kind: probe.Readiness}: ejection}, Penalty: penalty}, probe.StateReady, probe.GatewayDown},
		{"db", Restated{Penalty: penalty}, probe.StateDamped, probe.GatewayDown},
		{"web", Restated{}, probe.StateReady, probe.GatewayReady},
		{"db", Restated{}, probe.StateReady, probe.GatewayReady},
	} {
		id := probe.ID{Target: c.name, Kind: probe.Readiness}
		c.of.Memories = map[probe.ID]Memory{id: {State: verdict.State{Instance: "1", Verdict: probe.Passing, Last: probe.Success, Run: 1}, Since: since, Started: true}}
		if err := e.Admin().Restate(probe.Instance{Target: c.name, ID: "1", Phase: probe.Running, Since: since}, c.of); err != nil {
			t.Fatal(err)
		}
		st, _ := e.Target(c.name)
		if st.State != c.state || st.Gateway != c.gateway || !st.Ready || (st.Ejection != nil) != (len(c.of.Ejections) > 0) || (st.Damping != nil) != (c.state == probe.StateDamped) {
			t.Errorf("%s is %v, to gateways %v, ejected by %+v, with the damping %+v", c.name, st.State, st.Gateway, st.Ejection, st.Damping)
		}
		if st.Ejection != nil && (st.Ejection.Probe != id || !st.Ejection.Until.Equal(ejection.Until) || st.Ejection.Detail != ejection.Detail) {
			t.Errorf("the ejection is %+v", st.Ejection)
		}
		if st.Damping != nil && !st.Damping.Since.Equal(since) {
			t.Errorf("the damping is %+v", st.Damping)
		}
		if g, _ := e.WatchTarget(c.name); g.State() != c.state || g.Gateway() != c.gateway {
			t.Errorf("the gauge of %s shows %v, to gateways %v", c.name, g.State(), g.Gateway())
		}
	}
}

func TestAMemoryThatAProbeCannotHaveIsNotRestated(t *testing.T) {
	e := New(Config{})
	id, other := probe.ID{Target: "web", Kind: probe.Readiness}, probe.ID{Target: "db", Kind: probe.Readiness}
	handler := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Result{} })
	if _, err := e.Apply(probe.Set{id: {Handler: handler}}); err != nil {
		t.Fatal(err)
	}
	in := probe.Instance{Target: "web", ID: "web#1", Phase: probe.Running}
	for _, all := range []map[probe.ID]Memory{
		{id: {State: verdict.State{Verdict: probe.Failing, Run: -1}}},
		{other: {}},
	} {
		if err := e.Admin().Restate(in, Restated{Memories: all}); err == nil {
			t.Errorf("%v was restated", all)
		}
	}
	if st, _ := e.Status(id); st.Verdict == probe.Failing {
		t.Errorf("the probe is %v", st.Verdict)
	}
	if err := e.Admin().Restate(probe.Instance{Target: "db"}, Restated{}); err == nil {
		t.Error("a target without probes was restated")
	}
}

// A state began when the other engine says, unless that is in the future, and until the target is ready.
func TestARestatedTargetIsInItsStateSinceTheOtherEngineSays(t *testing.T) {
	e := New(Config{})
	id := probe.ID{Target: "web", Kind: probe.Readiness}
	handler := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Result{} })
	if _, err := e.Apply(probe.Set{id: {Handler: handler}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-3 * time.Hour).Truncate(time.Millisecond)
	decided := began.Add(time.Hour)
	restate := func(v probe.Verdict, r map[probe.ID]probe.Result, state probe.TargetState, since time.Time) TargetStatus {
		t.Helper()
		m := Memory{State: verdict.State{Instance: "web#1", Verdict: v, Last: probe.Failure, Run: 3}, Since: decided, Started: true}
		of := Restated{Memories: map[probe.ID]Memory{id: m}, Results: r, State: state, Since: since}
		if err := e.Admin().Restate(probe.Instance{Target: "web", ID: "web#1", Phase: probe.Running, Since: began}, of); err != nil {
			t.Fatal(err)
		}
		st, _ := e.Target("web")
		return st
	}
	if st := restate(probe.Failing, nil, probe.StateNotReady, began); st.State != probe.StateNotReady || !st.Since.Equal(began) {
		t.Errorf("it is %v since %v, want %v", st.State, st.Since, began)
	}
	e.Admin().Pause("web", Pause{Reason: probe.ReasonPaused, Since: time.Now()})
	e.Admin().Unpause("web")
	if st, _ := e.Target("web"); !st.Since.Equal(began) {
		t.Errorf("after a pause it is %v since %v, want %v", st.State, st.Since, began)
	}
	blind := map[probe.ID]probe.Result{id: probe.Broken("test.trap", "a bug")}
	if st := restate(probe.Failing, blind, probe.StateNotReady, began); !st.Probes[0].Blind || st.Probes[0].Result.Reason != "test.trap" {
		t.Errorf("a blind probe is %+v", st.Probes[0])
	}
	restate(probe.Passing, nil, probe.StateAbsent, time.Time{})
	e.Admin().RestateSince("web", probe.StateNotReady, time.Now().Add(time.Hour))
	if st := restate(probe.Failing, nil, probe.StateNotReady, time.Now().Add(time.Hour)); st.Since.After(time.Now()) || st.Since.Equal(began) {
		t.Errorf("it is %v since %v", st.State, st.Since)
	}
	e.Admin().RestateSince("web", probe.StateNotReady, began)
	if st, _ := e.Target("web"); !st.Since.Equal(began) {
		t.Errorf("it is %v since %v, want %v", st.State, st.Since, began)
	}
	restate(probe.Passing, nil, probe.StateAbsent, time.Time{})
	if st := restate(probe.Failing, nil, probe.StateAbsent, time.Time{}); st.Since.Equal(began) {
		t.Error("it has recovered, and is said to fail since before")
	}
}
