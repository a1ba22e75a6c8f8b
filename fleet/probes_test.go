package fleet_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// Probes returns all probes of the fleet, including those that vantages attempt.
func TestAFleetHasTheProbesThatItWasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		targets := alone(w.targets(many))
		one := start(t, "one", coordtest.NewLocal(), targets)
		time.Sleep(time.Minute)
		if len(targets.Quorums) == 0 {
			t.Fatal("no probe has a quorum")
		}
		same := func(p, q probe.Probe) bool {
			p.Rule.Kind, q.Rule.Kind = 0, 0
			return p.Rule == q.Rule && p.Target.Equal(q.Target) && p.Revision == q.Revision
		}
		if got := one.fleet.Probes(); !maps.EqualFunc(got, targets.Probes, same) {
			t.Errorf("it has %d probes, and was given %d", len(got), len(targets.Probes))
		}
	})
}
