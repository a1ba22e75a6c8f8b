package fleet

import (
	"sync/atomic"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
)

// desired are the targets of the fleet by shard, as Fleet.Plan has set them last. They are replaced, not changed.
type desired struct {
	shards atomic.Pointer[map[shard.ID]*Targets]
	polled atomic.Pointer[probe.Set] // the probes with a quorum, as they were passed to Fleet.Plan
}

// get returns the targets, nil before there are any.
func (d *desired) get() map[shard.ID]*Targets {
	if shards := d.shards.Load(); shards != nil {
		return *shards
	}
	return nil
}

// in returns the targets of the shard that a target is in, nil for none.
func (d *desired) in(target string) *Targets { return d.get()[shard.Of(target)] }

// probe returns a probe of the fleet, the zero one for any other.
func (d *desired) probe(id probe.ID) probe.Probe { return d.in(id.Target).probes()[id] }

// joint returns the handler of a probe that vantages decide, and false for any other.
func (d *desired) joint(id probe.ID) (joint, bool) {
	j, isJoint := d.probe(id).Handler.(joint)
	return j, isJoint
}

// decidesAlone reports whether a probe is one of the fleet that its owner alone decides.
func (d *desired) decidesAlone(id probe.ID) bool {
	p := d.probe(id)
	_, isJoint := p.Handler.(joint)
	return p.Handler != nil && !isJoint
}

// isGone reports whether the fleet no longer has a unit of a target.
func (d *desired) isGone(target string) bool {
	shards := d.get()
	return shards != nil && shards[shard.Of(target)].unit(target).Driver == nil
}
