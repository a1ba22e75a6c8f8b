package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
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
		"stopped, ran away":    {sandbox.Report{Ending: sandbox.Stopped, Err: stopped, Starved: true, RanAway: true}, probe.Unknown, ReasonBusy, true},
		"ran away in a stall":  {sandbox.Report{Ending: sandbox.Stopped, Err: stopped, Starved: true, RanAway: true, Stalled: true}, probe.Unknown, ReasonBusy, false},
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

// Calls that run away together take the processors from each other, and other calls of the plugin
// return meanwhile. Fewer and fewer are made at once, until they compute for long enough to be
// blamed, and suspended.
func TestCallsThatRunAwayTogetherAreBlamedInTheEnd(t *testing.T) {
	for _, healthy := range []int{0, 1, 100} {
		for _, bad := range []int{4, 64, 1000} {
			t.Run(fmt.Sprintf("%d beside %d", bad, healthy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { runAway(t, bad, healthy) })
			})
		}
	}
}

// runAway makes attempts that do not end, in rounds of a second, until one of their probes, or the
// plugin, is suspended.
func runAway(t *testing.T, bad, healthy int) {
	const slots, much = 1, 10 * time.Millisecond
	p := &Plugin{logger: slog.New(slog.DiscardHandler)}
	p.pool = pool.New(bad+healthy, func() int { return bad + healthy }, func() {}, func(*sandbox.Instance) {})
	hs, good := make([]Handler, bad), Handler{plugin: p}
	for n := range hs {
		hs[n].plugin = p
	}
	next := 0
	for range 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond) // nobody waits
		together := 0
		for ; together < bad; together++ {
			i, _, err := p.pool.Get(ctx, pool.Fast)
			if err != nil {
				break
			}
			if i == nil {
				p.pool.Started()
			}
		}
		cancel()
		time.Sleep(time.Second)
		for range together {
			computed := time.Second * slots / time.Duration(together)
			r := sandbox.Report{Ending: sandbox.Stopped, Err: errors.New("stopped"), Starved: together > 1, RanAway: computed > much}
			_, fault := p.resultOf(t.Context(), r)
			hs[next%bad].record(r, fault, "bad")
			next++
			p.pool.Put(new(sandbox.Instance))
		}
		for range healthy {
			good.record(sandbox.Report{Ending: sandbox.Returned, Value: 1}, false, "good")
		}
		if _, plugin, probes := p.breaker.Suspensions(time.Now()); plugin+probes > 0 {
			return
		}
	}
	t.Error("neither a probe nor the plugin is suspended")
}
