package engine

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// TestTimeoutsAreNotLongerWhileManyAttemptsWait: a degraded engine gives attempts more
// time, but those of targets that hang must not fill the places of all others.
func TestTimeoutsAreNotLongerWhileManyAttemptsWait(t *testing.T) {
	c := clock.New()
	m := new(health.Monitor)
	n := nonBlocking{clock: c, monitor: m, limit: 16}
	rule := &probe.Rule{Period: time.Minute, Timeout: time.Second}
	now := c.Now()
	for range 3 {
		now += int64(time.Second)
		m.Blame(now)
	}
	for _, step := range []struct {
		waiting int
		more    bool
	}{{0, true}, {8, true}, {9, false}, {16, false}, {1, true}} {
		n.waiting = step.waiting
		if got := n.timeout(rule, now); (got > rule.Timeout) != step.more {
			t.Errorf("%d of 16 attempts wait: the timeout is %v, usually %v", step.waiting, got, rule.Timeout)
		}
	}
}
