package fleet

import (
	"sync"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
)

// desired are the targets of the fleet by shard, as Fleet.Apply has set them last. They are replaced, not changed.
type desired struct {
	desiredMu sync.Mutex // guards all below
	shards    map[shard.ID]*Targets
	isSet     bool
}

// get returns the targets, and false before there are any.
func (d *desired) get() (shards map[shard.ID]*Targets, isSet bool) {
	d.desiredMu.Lock()
	defer d.desiredMu.Unlock()
	return d.shards, d.isSet
}

// set replaces the targets.
func (d *desired) set(shards map[shard.ID]*Targets) {
	d.desiredMu.Lock()
	defer d.desiredMu.Unlock()
	d.shards, d.isSet = shards, true
}

// in returns the targets of the shard that a target is in, nil for none.
func (d *desired) in(target string) *Targets {
	shards, _ := d.get()
	return shards[shard.Of(target)]
}

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
	shards, isSet := d.get()
	return isSet && shards[shard.Of(target)].unit(target).Driver == nil
}
