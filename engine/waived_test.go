package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// claimant is a handler that returns a result just before its timeout expires.
type claimant struct {
	result   probe.Result
	timeouts []time.Duration // timeouts of its calls
}

func (x *claimant) Probe(ctx context.Context, _ probe.Target) probe.Result {
	end, _ := ctx.Deadline()
	timeout := time.Until(end)
	x.timeouts = append(x.timeouts, timeout)
	time.Sleep(timeout - time.Nanosecond)
	r := x.result
	if r.Lost > 0 {
		r.Lost = timeout
	}
	return r
}

// A handler may be wrong about the machine, or its own commands may use up the resources that they lack. Without a limit, its
// failures would never count, and a degraded engine restarts nothing.
func TestEightFailuresInARowAreWaived(t *testing.T) {
	const period = 20 * time.Second
	denied, lost := probe.Fail(probe.ReasonExecExit, ""), probe.Fail(probe.ReasonExecTimeout, "")
	denied.Denied, lost.Lost = true, 1
	for name, c := range map[string]struct {
		result probe.Result
		why    probe.Reason
	}{
		"denied processes": {denied, probe.ReasonResources},
		"lost time":        {lost, "engine.stalled"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				x := &claimant{result: c.result}
				p := with(x)
				p.Rule = probe.Rule{Period: period, Timeout: time.Second, FailureThreshold: 1}
				apply(t, e, probe.Set{readiness: p})
				e.Report(instance("a"))
				awaitAttempts(t, e, 8)
				if st := status(t, e, readiness); st.Result.Reason != c.why || st.Attempts[probe.Failure] != 0 {
					t.Errorf("after eight attempts: %+v", st)
				}
				if h := e.Health(); h.Score != 0 {
					t.Errorf("the engine blames itself: %+v", h)
				}
				awaitAttempts(t, e, 9)
				if st := status(t, e, readiness); st.Result.Reason != c.result.Reason || st.Attempts[probe.Failure] != 1 {
					t.Errorf("after nine attempts: %+v", st)
				}
				if first, last := x.timeouts[0], x.timeouts[len(x.timeouts)-1]; first != time.Second || last != 9*time.Second || len(x.timeouts) != 9 {
					t.Errorf("the timeouts of nine attempts were %v", x.timeouts)
				}
				x.result = probe.Succeed("")
				awaitAttempts(t, e, 10)
				x.result = c.result
				awaitAttempts(t, e, 11)
				if st := status(t, e, readiness); st.Result.Reason != c.why {
					t.Errorf("after a success: %+v", st.Result)
				}
			})
		})
	}
}

// A target that uses up the machine's processes fails as soon as its threshold is reached.
func TestEachFailureAfterTheWaivedOnesCounts(t *testing.T) {
	denied, lost := probe.Fail(probe.ReasonExecExit, ""), probe.Fail(probe.ReasonExecTimeout, "")
	denied.Denied, lost.Lost = true, 1
	for name, result := range map[string]probe.Result{"denied processes": denied, "lost time": lost} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				x := &claimant{result: probe.Succeed("")}
				p := with(x)
				p.Rule = probe.Rule{Period: 20 * time.Second, Timeout: time.Second, FailureThreshold: 3}
				apply(t, e, probe.Set{readiness: p})
				e.Report(instance("a"))
				awaitAttempts(t, e, 1)
				x.result = result
				awaitAttempts(t, e, 9)
				x.result = probe.Broken(probe.ReasonStopped, "") // no evidence: no effect
				awaitAttempts(t, e, 10)
				x.result = result
				awaitAttempts(t, e, 12)
				if st := status(t, e, readiness); st.Verdict != probe.Passing || st.Run != 2 {
					t.Errorf("after the second failure that counts: %+v", st)
				}
				awaitAttempts(t, e, 13)
				if st := status(t, e, readiness); st.Verdict != probe.Failing || st.Attempts[probe.Failure] != 3 {
					t.Errorf("after the third failure that counts: %+v", st)
				}
				x.result = probe.Fail(probe.ReasonExecExit, "")
				awaitAttempts(t, e, 14)
				x.result = result
				awaitAttempts(t, e, 15)
				if st := status(t, e, readiness); st.Result.Outcome != probe.Unknown {
					t.Errorf("after a failure without a claim: %+v", st.Result)
				}
			})
		})
	}
}

// The first command that runs again after a shortage does not fail because of it.
func TestCommandsThatCouldNotStartAreNotWaivedFailures(t *testing.T) {
	denied := probe.Fail(probe.ReasonExecExit, "")
	denied.Denied = true
	notStarted := probe.Broken(probe.ReasonResources, "")
	notStarted.Denied = true
	busy := probe.Broken("plugin.busy", "")
	busy.Lost = 1
	for name, unknown := range map[string]probe.Result{"a command": notStarted, "a plugin": busy} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				x := &claimant{result: unknown}
				p := with(x)
				p.Rule = probe.Rule{Period: 20 * time.Second, Timeout: time.Second, FailureThreshold: 1}
				apply(t, e, probe.Set{readiness: p})
				e.Report(instance("a"))
				awaitAttempts(t, e, 20)
				if last := x.timeouts[len(x.timeouts)-1]; last != time.Second {
					t.Errorf("the last timeout was %v", last)
				}
				if h := e.Health(); h.Score != 0 {
					t.Errorf("the engine blames itself: %+v", h)
				}
				x.result = denied
				awaitAttempts(t, e, 21)
				if st := status(t, e, readiness); st.Result.Reason != probe.ReasonResources || st.Attempts[probe.Failure] != 0 {
					t.Errorf("after the shortage: %+v", st)
				}
			})
		})
	}
}

// awaitAttempts waits until n attempts have finished.
func awaitAttempts(t *testing.T, e *engine.Engine, n uint64) {
	t.Helper()
	for range 1000 {
		var ended uint64
		for _, attempts := range status(t, e, readiness).Attempts {
			ended += attempts
		}
		if ended >= n {
			return
		}
		pass(time.Second)
	}
	t.Fatalf("no %d attempts", n)
}
