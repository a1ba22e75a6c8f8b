package verdict_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

func TestNothingHappensWithoutAnInstance(t *testing.T) {
	passing := verdict.State{Instance: "a", Verdict: probe.Passing, Last: probe.Success, Run: 2}
	runSteps(t, []stepCase{
		{"K31 nothing is known of the target", readiness, verdict.State{},
			looked(probe.Instance{}), verdict.State{}, waits(verdict.NoInstance)},
		{"K31 what was known stands", readiness, passing,
			looked(in(probe.Absent, running("b"))), passing, waits(verdict.NoInstance)},
		{"K33 an instance without an ID", readiness, passing,
			looked(running("")), passing, waits(verdict.NoInstance)},
		{"an answer before the first look", readiness, verdict.State{},
			attempted(running(""), probe.Success), verdict.State{}, again},
	})
}

func TestAnInstanceIsAdoptedWithTheKindsInitialVerdict(t *testing.T) {
	old := func(v probe.Verdict, hold bool) verdict.State {
		return verdict.State{Instance: "a", Verdict: v, Last: probe.Failure, Run: 1, Errors: 2, OnHold: hold}
	}
	runSteps(t, []stepCase{
		{"K34 startup is undecided", startup, verdict.State{}, looked(running("a")),
			verdict.State{Instance: "a"}, changed(attempt)},
		{"K34 readiness fails", readiness, verdict.State{}, lookedStarted(running("a")),
			verdict.State{Instance: "a", Verdict: probe.Failing}, changed(attempt)},
		{"K34 liveness passes", liveness, verdict.State{}, lookedStarted(running("a")),
			verdict.State{Instance: "a", Verdict: probe.Passing}, changed(attempt)},
		{"K34 the same verdict for another instance is a change", readiness, old(probe.Failing, false), lookedStarted(running("b")),
			verdict.State{Instance: "b", Verdict: probe.Failing}, changed(attempt)},
		{"K34 another instance lifts a hold", liveness, old(probe.Failing, true), lookedStarted(running("b")),
			verdict.State{Instance: "b", Verdict: probe.Passing}, changed(attempt)},
		{"K34 another instance that has to wait lifts a hold too", startup, old(probe.Passing, true), looked(in(probe.Waiting, running("b"))),
			verdict.State{Instance: "b", Verdict: probe.Failing, Down: true}, changed(waits(verdict.NotRunning))},
		{"another instance is not down for its predecessor", readiness,
			verdict.State{Instance: "a", Verdict: probe.Failing, Down: true}, lookedStarted(running("b")),
			verdict.State{Instance: "b", Verdict: probe.Failing}, changed(attempt)},
		{"the same instance keeps everything", readiness, old(probe.Passing, false), lookedStarted(running("a")),
			old(probe.Passing, false), attempt},
	})
}

func TestRunsOutliveAnInstanceInTheKubeletsCompatibilityOnly(t *testing.T) {
	two := verdict.State{Instance: "a", Verdict: probe.Passing, Last: probe.Failure, Run: 2, Errors: 1}
	carried := verdict.State{Instance: "b", Verdict: probe.Passing, Last: probe.Failure, Run: 2, Errors: 1}
	killed := verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Failure, OnHold: true}
	runSteps(t, []stepCase{
		{"K48 mended: two failures are forgotten", liveness, two, lookedStarted(running("b")),
			verdict.State{Instance: "b", Verdict: probe.Passing}, changed(attempt)},
		{"K48 kubelet: two failures count against the successor", kubelet(liveness), two, lookedStarted(running("b")),
			carried, changed(attempt)},
		{"K48 kubelet: one more kills the successor", kubelet(liveness), carried, attempted(running("b"), probe.Failure),
			verdict.State{Instance: "b", Verdict: probe.Failing, Last: probe.Failure, OnHold: true}, changed(held)},
		{"K48 kubelet: a successor is ready after one success", kubelet(readiness),
			verdict.State{Instance: "b", Verdict: probe.Failing, Last: probe.Success, Run: 2}, attempted(running("b"), probe.Success),
			verdict.State{Instance: "b", Verdict: probe.Passing, Last: probe.Success, Run: 3}, changed(again)},
		{"K50 kubelet: after a kill the successor has the full threshold", kubelet(liveness), killed, lookedStarted(running("b")),
			verdict.State{Instance: "b", Verdict: probe.Passing, Last: probe.Failure}, changed(attempt)},
	})
}

func TestAProbeOnHoldMakesNoAttempt(t *testing.T) {
	failed := verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Failure, OnHold: true}
	passed := verdict.State{Instance: "a", Verdict: probe.Passing, Last: probe.Success, OnHold: true}
	lifted := failed
	lifted.OnHold = false
	runSteps(t, []stepCase{
		{"K36 liveness that failed", liveness, failed, lookedStarted(running("a")), failed, held},
		{"K36 startup that failed", startup, failed, looked(running("a")), failed, held},
		{"K36 startup that passed", startup, passed, lookedStarted(running("a")), passed, held},
		{"K36 comes before K37", liveness, failed, looked(in(probe.Ended, running("a"))), failed, held},
		{"K36 comes before K38", liveness, failed, looked(terminating(running("a"))), failed, held},
		{"K36 nor in the kubelet's compatibility", kubelet(startup), passed, looked(in(probe.Waiting, running("a"))), passed, held},
		{"a gone instance ends a failed probe", liveness, failed, looked(in(probe.Gone, running("a"))), failed, finished},
		{"a gone instance ends a passed probe", startup, passed, looked(in(probe.Gone, running("a"))), passed, finished},
		{"kubelet: a gone instance ends a passed probe", kubelet(startup), passed, looked(in(probe.Gone, running("a"))), passed, finished},
		{"the hold of liveness ends with its driver", liveness, failed, lookedStarted(unmanaged(running("a"))), lifted, attempt},
		{"the hold of a failed startup ends with its driver", startup, failed, looked(unmanaged(running("a"))), lifted, attempt},
		{"the hold of a passed startup needs no driver", startup, passed, lookedStarted(unmanaged(running("a"))), passed, held},
		{"a driver that comes back holds nothing before the next failure", liveness, lifted, lookedStarted(running("a")), lifted, attempt},
	})
}

func TestAnInstanceThatDoesNotRunIsNotHealthy(t *testing.T) {
	before := func(v probe.Verdict) verdict.State {
		return verdict.State{Instance: "a", Verdict: v, Last: probe.Success, Run: 4, Errors: 1}
	}
	down := func(v probe.Verdict) verdict.State { s := before(v); s.Down = true; return s }
	waiting, ended := in(probe.Waiting, running("a")), in(probe.Ended, running("a"))
	gone := in(probe.Gone, running("a"))
	runSteps(t, []stepCase{
		{"K37 startup fails", startup, before(probe.Undecided), looked(waiting), down(probe.Failing), changed(waits(verdict.NotRunning))},
		{"K37 readiness fails", readiness, before(probe.Passing), looked(ended), down(probe.Failing), changed(waits(verdict.NotRunning))},
		{"K37 mended: liveness is undecided", liveness, before(probe.Passing), looked(ended), down(probe.Undecided), changed(waits(verdict.NotRunning))},
		{"K37 kubelet: liveness fails", kubelet(liveness), before(probe.Passing), looked(ended), before(probe.Failing), changed(waits(verdict.NotRunning))},
		{"K37 kubelet: startup fails", kubelet(startup), before(probe.Undecided), looked(waiting), before(probe.Failing), changed(waits(verdict.NotRunning))},
		{"K37 kubelet: readiness fails", kubelet(readiness), before(probe.Passing), looked(waiting), before(probe.Failing), changed(waits(verdict.NotRunning))},
		{"K37 is published once", readiness, down(probe.Failing), looked(ended), down(probe.Failing), waits(verdict.NotRunning)},
		{"K37 at the first look", liveness, verdict.State{}, looked(waiting),
			verdict.State{Instance: "a", Down: true}, changed(waits(verdict.NotRunning))},
		{"K37 a gone instance finishes readiness", readiness, before(probe.Passing), looked(gone), down(probe.Failing), changed(finished)},
		{"K37 a gone instance finishes liveness", liveness, before(probe.Passing), looked(gone), down(probe.Undecided), changed(finished)},
		{"K37 kubelet: a gone instance finishes liveness", kubelet(liveness), before(probe.Passing), looked(gone), before(probe.Failing), changed(finished)},
		{"K37 comes before K38", liveness, before(probe.Passing), looked(terminating(waiting)), down(probe.Undecided), changed(waits(verdict.NotRunning))},
	})
}

func TestAnInstanceThatRunsAgainStartsWithTheInitialVerdict(t *testing.T) {
	down := func(v probe.Verdict) verdict.State {
		return verdict.State{Instance: "a", Verdict: v, Last: probe.Success, Run: 4, Down: true}
	}
	up := func(v probe.Verdict) verdict.State { s := down(v); s.Down = false; return s }
	runSteps(t, []stepCase{
		{"liveness passes", liveness, down(probe.Undecided), lookedStarted(running("a")), up(probe.Passing), changed(attempt)},
		{"startup is undecided", startup, down(probe.Failing), looked(running("a")), up(probe.Undecided), changed(attempt)},
		{"readiness fails", readiness, down(probe.Failing), lookedStarted(running("a")), up(probe.Failing), attempt},
		{"liveness before its delay passes too", delayed(liveness, time.Second), down(probe.Undecided), lookedStarted(running("a")),
			up(probe.Passing), changed(verdict.Next{WaitReason: verdict.InitialDelay, At: t0.Add(time.Second)})},
		{"a terminating instance is not down any more", startup, down(probe.Failing), looked(terminating(running("a"))), up(probe.Undecided), changed(finished)},
		{"K143 kubelet: liveness still fails", kubelet(liveness), up(probe.Failing), lookedStarted(running("a")), up(probe.Failing), attempt},
	})
}

func TestATerminatingInstanceIsNotRestarted(t *testing.T) {
	failing := verdict.State{Instance: "a", Verdict: probe.Failing, Last: probe.Failure, Run: 2}
	passing := failing
	passing.Verdict = probe.Passing
	runSteps(t, []stepCase{
		{"K38 liveness passes and ends", liveness, failing, lookedStarted(terminating(running("a"))), passing, changed(finished)},
		{"K38 liveness at the first look", liveness, verdict.State{}, looked(terminating(running("a"))),
			verdict.State{Instance: "a", Verdict: probe.Passing}, changed(finished)},
		{"K38 mended: startup ends as it is", startup, verdict.State{Instance: "a"}, looked(terminating(running("a"))),
			verdict.State{Instance: "a"}, finished},
		{"K38 kubelet: startup passes and ends", kubelet(startup), verdict.State{Instance: "a"}, looked(terminating(running("a"))),
			verdict.State{Instance: "a", Verdict: probe.Passing}, changed(finished)},
		{"K38 comes before K39", delayed(liveness, time.Hour), failing, looked(terminating(running("a"))), passing, changed(finished)},
		{"K51 readiness goes on", readiness, failing, lookedStarted(terminating(running("a"))), failing, attempt},
		{"K51 kubelet: readiness goes on", kubelet(readiness), failing, lookedStarted(terminating(running("a"))), failing, attempt},
	})
}

func TestTheInitialDelayCountsFromTheInstancesStart(t *testing.T) {
	s := verdict.State{Instance: "a", Verdict: probe.Failing}
	since := func(ago time.Duration) verdict.Event {
		i := running("a")
		i.Since = t0.Add(-ago)
		return lookedStarted(i)
	}
	delay := func(left time.Duration) verdict.Next {
		return verdict.Next{WaitReason: verdict.InitialDelay, At: t0.Add(left)}
	}
	five := delayed(readiness, 5*time.Second)
	runSteps(t, []stepCase{
		{"K39 just started", five, s, since(0), s, delay(5 * time.Second)},
		{"K39 a nanosecond early", five, s, since(5*time.Second - 1), s, delay(1)},
		{"K39 in time", five, s, since(5 * time.Second), s, attempt},
		{"K39 long ago", five, s, since(time.Hour), s, attempt},
		{"K39 no delay", readiness, s, since(0), s, attempt},
		{"K39 a start in the future", readiness, s, since(-time.Second), s, delay(time.Second)},
		{"K39 comes before K40", delayed(startup, time.Second), verdict.State{Instance: "a"}, since(0),
			verdict.State{Instance: "a"}, delay(time.Second)},
	})
}

func TestStartupComesFirstAndOnlyOnce(t *testing.T) {
	s := verdict.State{Instance: "a"}
	var cases []stepCase
	for name, r := range kinds {
		closed, open := waits(verdict.NotStarted), attempt
		if r.Kind == probe.Startup {
			closed, open = attempt, waits(verdict.Started)
		}
		cases = append(cases,
			stepCase{"K40 " + name + " before the start", r, s, looked(running("a")), s, closed},
			stepCase{"K40 " + name + " after the start", r, s, lookedStarted(running("a")), s, open})
	}
	runSteps(t, cases)
}
