package fleet

import (
	"sync/atomic"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
)

// desired has the targets of the fleet by shard, as Fleet.Plan has set them last. They are replaced, not modified.
type desired struct {
	shards atomic.Pointer[map[shard.ID]*Targets]
	polled atomic.Pointer[probe.Set] // the probes with a quorum, as passed to Fleet.Plan
}

// get returns the targets, or nil before any were set.
func (d *desired) get() map[shard.ID]*Targets {
	if shards := d.shards.Load(); shards != nil {
		return *shards
	}
	return nil
}

// in returns the targets of the shard of a target, or nil.
func (d *desired) in(target string) *Targets { return d.get()[shard.Of(target)] }

// probe returns a probe of the fleet, or the zero Probe if the fleet has no such probe.
func (d *desired) probe(id probe.ID) probe.Probe { return d.in(id.Target).probes()[id] }

// joint returns the handler of a probe that vantages decide, and false for any other probe.
func (d *desired) joint(id probe.ID) (joint, bool) {
	j, isJoint := d.probe(id).Handler.(joint)
	return j, isJoint
}

// decidesAlone reports whether a probe belongs to the fleet and is decided by its owner alone.
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
