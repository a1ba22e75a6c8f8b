package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// partlyDead runs f with an engine that probes targets once a second, at threshold 3. The given number of them have been silent
// for the given time, and fail.
func partlyDead(t *testing.T, targets, dead int, since time.Duration, f func(t *testing.T, e *engine.Engine, n *network)) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		n := &network{broken: map[string]probe.Result{}, takes: time.Millisecond}
		rule := probe.Rule{Period: time.Second, Timeout: 500 * time.Millisecond, FailureThreshold: 3}
		probeTargets(t, e, n, rule, targets, remote)
		pass(5 * time.Second)
		for i := range dead {
			n.fallSilent(remote(i), probe.Fail(probe.ReasonTCPTimeout, ""))
		}
		pass(since)
		if got := failing(e); got != dead || e.Health().Isolated {
			t.Fatalf("%d targets fail, want %d; isolated: %v", got, dead, e.Health().Isolated)
		}
		f(t, e, n)
	})
}

// Targets that failed long ago do not excuse a target, and few targets do not excuse each other.
func TestTheLastTargetsThatAnswerFailInTheirUsualTime(t *testing.T) {
	tier.Slow(t)
	for _, test := range []struct {
		targets, dead int
		since         time.Duration
	}{
		{1, 0, time.Second},
		{9, 0, time.Second},
		{9, 8, 12 * time.Second},
		{20, 19, 11 * time.Minute},
		{20, 17, 11 * time.Minute},
	} {
		t.Run(fmt.Sprint(test.dead, " of ", test.targets, " dead for ", test.since), func(t *testing.T) {
			partlyDead(t, test.targets, test.dead, test.since, func(t *testing.T, e *engine.Engine, n *network) {
				n.fail(probe.ReasonTCPTimeout, false)
				pass(3500 * time.Millisecond) // three attempts, and the last timeout
				if got := failing(e); got != test.targets || e.Health().Isolated {
					t.Errorf("%d targets fail, want all %d; isolated: %v", got, test.targets, e.Health().Isolated)
				}
			})
		})
	}
}

// Probes that a reload removes are no longer awaited: they are no evidence about the remaining ones.
func TestATargetThatAReloadLeavesFailsAlthoughManyWereSilent(t *testing.T) {
	reachable(t, engine.Config{}, remote, func(t *testing.T, e *engine.Engine, n *network) {
		n.fail(probe.ReasonTCPTimeout, false)
		pass(10 * time.Second)
		if !e.Health().Isolated {
			t.Fatal("the engine is not isolated")
		}
		rule := probe.Rule{Period: time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1}
		probeTargets(t, e, n, rule, 3, remote)
		pass(3 * time.Second)
		if got := failing(e); got != 3 || e.Health().Isolated {
			t.Errorf("%d targets fail, want the 3 that are left; isolated: %v", got, e.Health().Isolated)
		}
	})
}

// All targets with names have failed, and targets with addresses respond now and then.
func TestTargetsThatHaveFailedDoNotMakeTheEngineIsolatedWhileOthersAnswer(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		n := &network{broken: map[string]probe.Result{}, takes: time.Millisecond}
		rule := probe.Rule{Period: 10 * time.Second, Timeout: time.Second, FailureThreshold: 3}
		addresses := make([]string, 20)
		for i := range addresses {
			addresses[i] = names(i)
		}
		addresses[0], addresses[1] = remote(0), remote(1)
		probeTargets(t, e, n, rule, len(addresses), func(i int) string { return addresses[i] })
		pass(3 * rule.Period)
		for _, name := range addresses[2:] {
			silent := probe.Fail(probe.ReasonTCPTimeout, "")
			silent.Timings.Resolve = time.Millisecond
			n.fallSilent(name, silent)
		}
		pass(6 * rule.Period)
		if got := failing(e); got != 18 {
			t.Errorf("%d targets fail, want 18", got)
		}
		for range 600 {
			if pass(100 * time.Millisecond); e.Health().Isolated || e.Health().NamesIsolated {
				t.Fatal("the engine is isolated")
			}
		}
	})
}
