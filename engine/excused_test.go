package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// excuser returns a result, at the end of the timeout that it is given.
type excuser struct {
	result   probe.Result
	timeouts []time.Duration // of its calls
}

func (x *excuser) Probe(ctx context.Context, _ probe.Target) probe.Result {
	end, _ := ctx.Deadline()
	timeout := time.Until(end)
	x.timeouts = append(x.timeouts, timeout)
	time.Sleep(timeout)
	r := x.result
	if r.Lost > 0 {
		r.Lost = timeout
	}
	return r
}

// A handler may be wrong about the machine, or its own commands take what they lack: then
// nothing else would ever count, and a degraded engine restarts nothing.
func TestAHandlerExcusesEightAttemptsInARow(t *testing.T) {
	const period = 20 * time.Second
	denied, lost := probe.Fail(probe.ReasonExecExit, ""), probe.Fail(probe.ReasonExecTimeout, "")
	denied.Denied, lost.Lost = true, 1
	for name, c := range map[string]struct {
		result probe.Result
		why    probe.Reason
	}{
		"denied processes": {denied, probe.ReasonResources},
		"lost time":        {lost, probe.ReasonStalled},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				x := &excuser{result: c.result}
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
				if first, last := x.timeouts[0], x.timeouts[len(x.timeouts)-1]; first != time.Second || last != 9*time.Second {
					t.Errorf("the timeouts were %v", x.timeouts)
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

// awaitAttempts waits until so many attempts have ended.
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
