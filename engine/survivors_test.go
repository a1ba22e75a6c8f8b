package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// A rack is lost, or a link to another site, and little else responds.
func TestTargetsThatFailTogetherFailAlthoughFewSurvive(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	for _, test := range []struct {
		targets, survivors int
		timeout            time.Duration
		addresses          func(int) string
	}{
		{100, 1, time.Second, remote},
		{100, 5, time.Second, remote},
		{100, 10, time.Second, names},
		{300, 3, time.Second, remote},
		{300, 3, 5 * time.Second, remote},
		{100, 1, 10 * time.Second, remote},
		{1000, 10, time.Second, remote},
	} {
		t.Run(fmt.Sprint(test.survivors, " of ", test.targets, " in ", test.timeout), func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				n := &network{broken: map[string]probe.Result{}, takes: 2 * time.Millisecond}
				rule := probe.Rule{Period: 10 * time.Second, Timeout: test.timeout, FailureThreshold: 3}
				probeTargets(t, e, n, rule, test.targets, test.addresses)
				pass(3 * rule.Period)
				for i := test.survivors; i < test.targets; i++ {
					silent := probe.Fail(probe.ReasonTCPTimeout, "")
					silent.Timings.Resolve = timings(test.addresses(i)).Resolve
					n.fallSilent(test.addresses(i), silent)
				}
				flips := countFlips(e, 10*rule.Period)
				if got, want := failing(e), test.targets-test.survivors; got != want || flips > 12 {
					t.Errorf("%d targets fail after ten periods, want %d; the engine became isolated %d times", got, want, flips)
				}
				if flips := countFlips(e, 10*rule.Period); flips > 0 || e.Health().Isolated {
					t.Errorf("the engine became isolated %d times afterwards; it is now: %v", flips, e.Health().Isolated)
				}
			})
		})
	}
}

// countFlips returns how often an engine becomes isolated in a given time.
func countFlips(e *engine.Engine, during time.Duration) (count int) {
	was := e.Health().Isolated
	for range during / (100 * time.Millisecond) {
		pass(100 * time.Millisecond)
		is := e.Health().Isolated
		if is && !was {
			count++
		}
		was = is
	}
	return count
}
