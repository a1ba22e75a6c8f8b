package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// The latency rises tenfold but stays within all limits. Within seven attempts the probe warns with the reason, so that the
// target is degraded, and some 20 usual attempts end the warnings.
func TestALatencyThatRisesIsAWarning(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		s := says(probe.Success)
		s.take(5 * time.Millisecond)
		p := with(s)
		p.Rule = probe.Rule{Period: time.Second, WarnOnRise: probe.RiseOfLatency}
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("1"))
		pass(1100 * time.Second)
		if got := status(t, e, readiness); got.Result.Outcome != probe.Success {
			t.Fatalf("while it is as usual: %+v", got.Result)
		}
		s.take(50 * time.Millisecond)
		pass(7 * time.Second)
		got := status(t, e, readiness)
		if got.Result.Outcome != probe.Warning || got.Result.Reason != "target.risen" || !strings.HasPrefix(got.Result.Detail, "p50 of latency 5.") || !strings.Contains(got.Result.Detail, "ms since ") {
			t.Errorf("7 attempts later: %+v", got.Result)
		}
		pass(2 * time.Second)
		if state, _ := e.Target("web"); state.State != probe.StateDegraded {
			t.Errorf("9 attempts later the target is %v", state.State)
		}
		s.take(5 * time.Millisecond)
		pass(30 * time.Second)
		if state, _ := e.Target("web"); state.State != probe.StateReady {
			t.Errorf("30 usual attempts later the target is %v", state.State)
		}
	})
}

func TestANumberThatRisesIsAWarning(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		var lag atomic.Int64
		p := with(probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
			probe.RecordTrace(ctx, func(t *probe.Trace) { t.Measured = map[string]float64{"lag": float64(lag.Load()), "other": 3} })
			return probe.Succeed("status 200")
		}))
		p.Rule = probe.Rule{Period: time.Second, WarnOnRise: "lag"}
		other := p
		other.Rule.WarnOnRise = "none such"
		apply(t, e, probe.Set{readiness: p, named(readiness, "other"): other})
		e.Report(instance("1"))
		for range 1100 {
			lag.Store(1 - lag.Load())
			pass(time.Second)
		}
		for range 7 {
			lag.Add(20)
			pass(time.Second)
		}
		got := status(t, e, readiness)
		if got.Result.Outcome != probe.Warning || !strings.HasPrefix(got.Result.Detail, "p50 of lag ") || !strings.HasSuffix(got.Result.Detail, ": status 200") {
			t.Errorf("got %+v", got.Result)
		}
		if got := status(t, e, named(readiness, "other")); got.Result.Outcome != probe.Success {
			t.Errorf("without such a number: %+v", got.Result)
		}
	})
}

// A process that is restarted between two attempts is up in each of them, but its uptime falls.
func TestRestartsBetweenAttemptsAreAWarning(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		var started atomic.Int64 // Unix time; 0 if no uptime is measured
		started.Store(time.Now().Unix() - 1000)
		p := with(probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
			if at := started.Load(); at != 0 {
				probe.RecordTrace(ctx, func(t *probe.Trace) {
					t.Measured = map[string]float64{"uptime": float64(time.Now().Unix() - at)}
				})
			}
			return probe.Succeed("status 200")
		}))
		p.Rule = probe.Rule{Period: time.Second, MaxRestarts: 2}
		apply(t, e, probe.Set{readiness: p})
		e.Report(instance("1"))
		pass(time.Minute)
		for n := range 5 {
			got := status(t, e, readiness).Result
			if isWarning := n > 2; (got.Outcome == probe.Warning) != isWarning || isWarning && (got.Reason != "target.restarts" ||
				!strings.HasPrefix(got.Detail, fmt.Sprint(n, " restarts in ")) || !strings.HasSuffix(got.Detail, "max_restarts is 2: status 200")) {
				t.Errorf("after %d restarts: %+v", n, got)
			}
			started.Store(0)
			pass(2 * time.Second)
			started.Store(time.Now().Unix())
			pass(18 * time.Second)
		}
		if state, _ := e.Target("web"); state.State != probe.StateDegraded {
			t.Errorf("the target is %v", state.State)
		}
		pass(6 * time.Minute)
		if state, _ := e.Target("web"); state.State != probe.StateReady {
			t.Errorf("6 minutes later the target is %v", state.State)
		}
	})
}
