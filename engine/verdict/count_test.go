package verdict_test

import (
	"math"
	"testing"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// after returns the state of instance "a" after a run of equal outcomes.
func after(v probe.Verdict, last probe.Outcome, run int32) verdict.State {
	return verdict.State{Instance: "a", Verdict: v, Last: last, Run: run}
}

// broken returns s after n consecutive attempts that could not be made.
func broken(s verdict.State, n int32) verdict.State { s.Errors = n; return s }

func onHold(s verdict.State) verdict.State { s.OnHold = true; return s }

func TestAnUnknownOutcomeDoesNotCount(t *testing.T) {
	two := after(probe.Passing, probe.Failure, 2)
	unknown := attempted(running("a"), probe.Unknown)
	runSteps(t, []stepCase{
		{"K41 only errors are counted", liveness, two, unknown, broken(two, 1), again},
		{"K41 however many", liveness, broken(two, 41), unknown, broken(two, 42), again},
		{"K41 up to a bound", liveness, broken(two, math.MaxInt32), unknown, broken(two, math.MaxInt32), again},
		{"K41 kubelet: the same", kubelet(liveness), two, unknown, broken(two, 1), again},
		{"K47 an error neither extends nor breaks a run", liveness, broken(two, 1), attempted(running("a"), probe.Failure),
			onHold(after(probe.Failing, probe.Failure, 0)), changed(held)},
		{"a success ends the row of errors", liveness, broken(two, 3), attempted(running("a"), probe.Success),
			after(probe.Passing, probe.Success, 1), again},
	})
}

func TestAnUnknownOutcomeCanCountAsAFailure(t *testing.T) {
	unknown := attempted(running("a"), probe.Unknown)
	runSteps(t, []stepCase{
		{"it extends a run of failures", errorsFail(readiness), after(probe.Passing, probe.Failure, 1), unknown,
			broken(after(probe.Passing, probe.Failure, 2), 1), again},
		{"it breaks a run of successes", errorsFail(readiness), after(probe.Passing, probe.Success, 7), unknown,
			broken(after(probe.Passing, probe.Failure, 1), 1), again},
		{"it meets the threshold", errorsFail(readiness), broken(after(probe.Passing, probe.Failure, 2), 2), unknown,
			broken(after(probe.Failing, probe.Failure, 3), 3), changed(again)},
		{"it ends an instance", errorsFail(liveness), broken(after(probe.Passing, probe.Failure, 2), 2), unknown,
			onHold(broken(after(probe.Failing, probe.Failure, 0), 3)), changed(held)},
		{"a failure ends the row of errors", errorsFail(readiness), broken(after(probe.Passing, probe.Failure, 1), 1),
			attempted(running("a"), probe.Failure), after(probe.Passing, probe.Failure, 2), again},
	})
}

func TestEqualOutcomesInARowAreARun(t *testing.T) {
	success, failure := attempted(running("a"), probe.Success), attempted(running("a"), probe.Failure)
	runSteps(t, []stepCase{
		{"K45 the first success", readiness, after(probe.Failing, probe.Unknown, 0), success, after(probe.Failing, probe.Success, 1), again},
		{"K45 the first failure", readiness, after(probe.Failing, probe.Unknown, 0), failure, after(probe.Failing, probe.Failure, 1), again},
		{"K45 an equal outcome", readiness, after(probe.Passing, probe.Success, 8), success, after(probe.Passing, probe.Success, 9), again},
		{"K45 a different outcome", readiness, after(probe.Passing, probe.Success, 8), failure, after(probe.Passing, probe.Failure, 1), again},
		{"K45 a warning is a success", readiness, after(probe.Failing, probe.Success, 1), attempted(running("a"), probe.Warning),
			after(probe.Passing, probe.Success, 2), changed(again)},
		{"K45 a run has a bound", readiness, after(probe.Passing, probe.Success, math.MaxInt32), success,
			after(probe.Passing, probe.Success, math.MaxInt32), again},
	})
}

func TestTheVerdictChangesAtTheThreshold(t *testing.T) {
	success, failure := attempted(running("a"), probe.Success), attempted(running("a"), probe.Failure)
	careless := probe.Rule{Kind: probe.Readiness}
	runSteps(t, []stepCase{
		{"K46 below the success threshold", readiness, after(probe.Failing, probe.Failure, 3), success, after(probe.Failing, probe.Success, 1), again},
		{"K46 at the success threshold", readiness, after(probe.Failing, probe.Success, 1), success, after(probe.Passing, probe.Success, 2), changed(again)},
		{"K46 above it nothing changes", readiness, after(probe.Passing, probe.Success, 2), success, after(probe.Passing, probe.Success, 3), again},
		{"K46 below the failure threshold", readiness, after(probe.Passing, probe.Failure, 1), failure, after(probe.Passing, probe.Failure, 2), again},
		{"K46 at the failure threshold", readiness, after(probe.Passing, probe.Failure, 2), failure, after(probe.Failing, probe.Failure, 3), changed(again)},
		{"K46 a threshold of 0 acts like 1", careless, after(probe.Failing, probe.Failure, 1), success, after(probe.Passing, probe.Success, 1), changed(again)},
		{"K46 for failures too", careless, after(probe.Passing, probe.Success, 1), failure, after(probe.Failing, probe.Failure, 1), changed(again)},
	})
}

func TestAProbeIsHeldWhenItsVerdictIsFinal(t *testing.T) {
	success, failure := probe.Success, probe.Failure
	alone := unmanaged(running("a"))
	runSteps(t, []stepCase{
		{"K49 liveness fails", liveness, after(probe.Passing, failure, 2), attempted(running("a"), failure),
			onHold(after(probe.Failing, failure, 0)), changed(held)},
		{"K49 startup fails", startup, after(probe.Undecided, failure, 2), attempted(running("a"), failure),
			onHold(after(probe.Failing, failure, 0)), changed(held)},
		{"K49 startup passes", startup, after(probe.Undecided, failure, 2), attempted(running("a"), success),
			onHold(after(probe.Passing, success, 0)), changed(held)},
		{"K49 startup passes without a driver", startup, after(probe.Undecided, failure, 2), attempted(alone, success),
			onHold(after(probe.Passing, success, 0)), changed(held)},
		{"K49 liveness passes and goes on", liveness, after(probe.Passing, failure, 2), attempted(running("a"), success),
			after(probe.Passing, success, 1), again},
		{"liveness fails without a driver and goes on", liveness, after(probe.Passing, failure, 2), attempted(alone, failure),
			after(probe.Failing, failure, 3), changed(again)},
		{"liveness recovers without a driver", liveness, after(probe.Failing, failure, 9), attempted(alone, success),
			after(probe.Passing, success, 1), changed(again)},
		{"startup fails without a driver and goes on", startup, after(probe.Undecided, failure, 2), attempted(alone, failure),
			after(probe.Failing, failure, 3), changed(again)},
		{"a failing instance that gets a driver is held at its next failure", liveness, after(probe.Failing, failure, 5),
			attempted(running("a"), failure), onHold(after(probe.Failing, failure, 0)), held},
		{"K51 readiness fails and goes on", readiness, after(probe.Passing, failure, 2), attempted(running("a"), failure),
			after(probe.Failing, failure, 3), changed(again)},
		{"K51 kubelet: readiness fails and goes on", kubelet(readiness), after(probe.Passing, failure, 2), attempted(running("a"), failure),
			after(probe.Failing, failure, 3), changed(again)},
		{"K49 kubelet: liveness fails", kubelet(liveness), after(probe.Passing, failure, 2), attempted(running("a"), failure),
			onHold(after(probe.Failing, failure, 0)), changed(held)},
	})
}

func TestALateResultIsDropped(t *testing.T) {
	one := after(probe.Passing, probe.Failure, 2)
	down := after(probe.Failing, probe.Success, 1)
	down.Down = true
	kept := onHold(after(probe.Failing, probe.Failure, 0))
	runSteps(t, []stepCase{
		{"about an earlier instance", liveness, one, attempted(running("z"), probe.Failure), one, again},
		{"unknown, about an earlier instance", liveness, one, attempted(running("z"), probe.Unknown), one, again},
		{"after the decision", liveness, kept, attempted(running("a"), probe.Success), kept, again},
		{"unknown, after the decision", liveness, kept, attempted(running("a"), probe.Unknown), kept, again},
		{"about what does not run any more", readiness, down, attempted(running("a"), probe.Success), down, again},
		{"about a terminating instance", liveness, one, attempted(terminating(running("a")), probe.Failure), one, again},
		{"but readiness of a terminating instance counts", readiness, one, attempted(terminating(running("a")), probe.Failure),
			after(probe.Failing, probe.Failure, 3), changed(again)},
	})
}

func extra(e verdict.Event) verdict.Event { e.Extra = true; return e }

func TestAFailureOutsideTheRegularTimesDoesNotCount(t *testing.T) {
	success, failure := extra(attempted(running("a"), probe.Success)), extra(attempted(running("a"), probe.Failure))
	unknown := extra(attempted(running("a"), probe.Unknown))
	runSteps(t, []stepCase{
		{"a success counts", readiness, after(probe.Failing, probe.Success, 1), success, after(probe.Passing, probe.Success, 2), changed(again)},
		{"a warning counts", readiness, after(probe.Failing, probe.Success, 1), extra(attempted(running("a"), probe.Warning)),
			after(probe.Passing, probe.Success, 2), changed(again)},
		{"the first failure", liveness, after(probe.Passing, probe.Unknown, 0), failure, after(probe.Passing, probe.Unknown, 0), again},
		{"a failure does not extend a run of failures", liveness, after(probe.Passing, probe.Failure, 2), failure,
			after(probe.Passing, probe.Failure, 2), again},
		{"a failure ends a run of successes", readiness, after(probe.Failing, probe.Success, 1), failure,
			after(probe.Failing, probe.Unknown, 0), again},
		{"a failure never meets a threshold", thresholds(startup, 1, 1), after(probe.Undecided, probe.Unknown, 0), failure,
			after(probe.Undecided, probe.Unknown, 0), again},
		{"an error that counts as a failure", errorsFail(thresholds(readiness, 1, 1)), after(probe.Passing, probe.Success, 3), unknown,
			broken(after(probe.Passing, probe.Unknown, 0), 1), again},
		{"an error that does not", readiness, after(probe.Failing, probe.Success, 1), unknown,
			broken(after(probe.Failing, probe.Success, 1), 1), again},
		{"kubelet: the same", kubelet(liveness), after(probe.Passing, probe.Failure, 2), failure, after(probe.Passing, probe.Failure, 2), again},
	})
}
