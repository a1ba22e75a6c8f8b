package verdict_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// t0 is the time of the events, or shortly before them.
var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// stepCase is one call of Step.
type stepCase struct {
	name  string
	rule  probe.Rule
	state verdict.State
	event verdict.Event
	want  verdict.State
	next  verdict.Next
}

func runSteps(t *testing.T, cases []stepCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, next := verdict.Step(c.rule, c.state, c.event, t0)
			if got != c.want {
				t.Errorf("state\n got %+v\nwant %+v", got, c.want)
			}
			if next != c.next {
				t.Errorf("next\n got %+v\nwant %+v", next, c.next)
			}
		})
	}
}

// The rules of the tests: the defaults, with success threshold 2 for readiness.
var (
	startup   = probe.Rule{Kind: probe.Startup, SuccessThreshold: 1, FailureThreshold: 3}
	readiness = probe.Rule{Kind: probe.Readiness, SuccessThreshold: 2, FailureThreshold: 3}
	liveness  = probe.Rule{Kind: probe.Liveness, SuccessThreshold: 1, FailureThreshold: 3}
)

var kinds = map[string]probe.Rule{"startup": startup, "readiness": readiness, "liveness": liveness}

func kubelet(r probe.Rule) probe.Rule                  { r.Compatibility = probe.Kubelet; return r }
func errorsFail(r probe.Rule) probe.Rule               { r.OnError = probe.ErrorFails; return r }
func delayed(r probe.Rule, d time.Duration) probe.Rule { r.InitialDelay = d; return r }

// running returns a managed instance that started at t0.
func running(id string) probe.Instance {
	return probe.Instance{Target: "web", ID: id, Phase: probe.Running, Since: t0, Managed: true}
}

func in(p probe.Phase, i probe.Instance) probe.Instance { i.Phase = p; return i }
func terminating(i probe.Instance) probe.Instance       { i.Terminating = true; return i }
func unmanaged(i probe.Instance) probe.Instance         { i.Managed = false; return i }

func looked(i probe.Instance) verdict.Event {
	return verdict.Event{Instance: i}
}

func lookedStarted(i probe.Instance) verdict.Event {
	return verdict.Event{Instance: i, Started: true}
}

func attempted(i probe.Instance, o probe.Outcome) verdict.Event {
	return verdict.Event{Attempted: true, Instance: i, Outcome: o}
}

// Frequent results.
var (
	attempt  = verdict.Next{}
	again    = verdict.Next{}
	held     = verdict.Next{WaitReason: verdict.Held}
	finished = verdict.Next{WaitReason: verdict.Finished}
)

func waits(why verdict.WaitReason) verdict.Next { return verdict.Next{WaitReason: why} }

// changed returns n with Changed set.
func changed(n verdict.Next) verdict.Next { n.Changed = true; return n }
