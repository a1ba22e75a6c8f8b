package wasmhost

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/internal/pool"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// A plugin whose calls wait for a processor that others have is late through no fault of
// its own, or of the target.
func TestLatenessOfAStarvedCallIsUnknown(t *testing.T) {
	stopped, failure := errors.New("stopped"), int32(probe.Failure)
	for name, test := range map[string]struct {
		report  sandbox.Report
		outcome probe.Outcome
		reason  probe.Reason
		fault   bool
	}{
		"stopped":              {sandbox.Report{Ending: sandbox.Stopped, Err: stopped}, probe.Failure, ReasonTimeout, true},
		"stopped, starved":     {sandbox.Report{Ending: sandbox.Stopped, Err: stopped, Starved: true}, probe.Unknown, ReasonBusy, false},
		"too late":             {sandbox.Report{Value: failure, Late: true}, probe.Failure, probe.ReasonTimeout, false},
		"too late, starved":    {sandbox.Report{Value: failure, Late: true, Starved: true}, probe.Unknown, ReasonBusy, false},
		"a failure, starved":   {sandbox.Report{Value: failure, Starved: true, Reason: "redis.loading"}, probe.Failure, "redis.loading", false},
		"a success, starved":   {sandbox.Report{Value: int32(probe.Success), Starved: true}, probe.Success, "", false},
		"a trap when starved":  {sandbox.Report{Ending: sandbox.Trapped, Err: stopped, Starved: true}, probe.Unknown, ReasonTrap, true},
		"stopped by a stall":   {sandbox.Report{Ending: sandbox.Stopped, Err: stopped, Stalled: true}, probe.Unknown, ReasonBusy, false},
		"a late own deadline":  {sandbox.Report{Value: failure, Last: sandbox.HostError{Reason: probe.ReasonTCPTimeout}}, probe.Failure, probe.ReasonTCPTimeout, false},
		"a refusal by a limit": {sandbox.Report{Value: failure, Late: true, Starved: true, Limit: "dials"}, probe.Unknown, ReasonLimit, false},
	} {
		t.Run(name, func(t *testing.T) {
			test.report.Waited = time.Second
			got, fault := new(Plugin).resultOf(t.Context(), test.report)
			if more, fewer := resizing(test.report); more != (test.report.Err == nil) || fewer != (name == "stopped, starved") {
				t.Errorf("more instances: %v, fewer: %v", more, fewer)
			}
			if got.Outcome != test.outcome || got.Reason != test.reason || fault != test.fault || got.Lost != time.Second {
				t.Errorf("got %+v, fault of the plugin: %v", got, fault)
			}
		})
	}
}

// Calls that run away together take the processors from each other. Fewer and fewer of them are
// made at once, until one has had the time to be blamed, and its probe is suspended.
func TestCallsThatRunAwayTogetherAreBlamedInTheEnd(t *testing.T) {
	const many = 64
	p := &Plugin{logger: slog.New(slog.DiscardHandler)}
	p.pool = pool.New(many, func() int { return many }, func() {}, func(*sandbox.Instance) {})
	h := &Handler{plugin: p}
	stopped := sandbox.Report{Ending: sandbox.Stopped, Err: errors.New("stopped")}
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	blamed := 0
	for range 20 {
		together := 0
		for ; together < many; together++ {
			i, _, err := p.pool.Get(ctx, pool.Fast)
			if err != nil {
				break
			}
			if i == nil {
				p.pool.Started()
			}
		}
		for range together {
			stopped.Starved = together > 1
			_, fault := p.resultOf(ctx, stopped)
			if h.record(stopped, fault, "bad"); fault {
				blamed++
			}
			p.pool.Put(new(sandbox.Instance))
		}
	}
	if _, suspensions := p.breaker.Suspensions(); blamed < 10 || suspensions == 0 {
		t.Errorf("%d calls were blamed, %d probes are suspended", blamed, suspensions)
	}
}
