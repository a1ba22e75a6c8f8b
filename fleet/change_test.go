package fleet

import (
	"testing"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// The causes of removed probes are deleted while their shard is owned.
func TestNothingIsNotedOfProbesThatAreRemoved(t *testing.T) {
	in := shard.Of("web")
	ready, live := probe.ID{Target: "web", Kind: probe.Readiness}, probe.ID{Target: "web", Kind: probe.Liveness}
	l := &ledger{
		applied: map[shard.ID]*Targets{}, unswept: map[shard.ID]bool{}, changes: newChanges(wake.New()),
		stored: map[shard.ID]*stored{in: {causes: map[probe.ID]cause{ready: {reason: "tcp.refused"}, live: {reason: "tcp.refused"}}}},
	}
	both, one := &Targets{Probes: probe.Set{ready: {}, live: {}}}, &Targets{Probes: probe.Set{ready: {}}}
	c := newChange()
	c.replace(in, both, one, memories{})
	l.note(c)
	if causes := l.stored[in].causes; len(causes) != 1 || causes[ready].reason == "" {
		t.Errorf("after the liveness probe is removed there are %v", causes)
	}
	c = newChange()
	c.replace(in, one, noTargets, memories{})
	l.note(c)
	if causes := l.stored[in].causes; len(causes) != 0 {
		t.Errorf("after the target is removed there are %v", causes)
	}
}
