package fleet

import (
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// change collects the changes of several shards.
type change struct {
	engine.Change
	units        map[string]restart.Unit
	removedUnits []string
	restarts     map[string]restart.Memory // by target, of units
	mayBeChanged map[probe.ID]bool         // probes that have succeeded, perhaps with another definition, or whose targets wait at their owner after a reload
	shown        map[string]shown          // by target: the state, and since when the target is in it
	told         map[string][]byte         // by target: what receivers know about it
	toldOfGroups map[string][]byte         // by group: what receivers know about it
	shards       map[shard.ID]*Targets     // the targets of each shard after the change; nil: none
	stored       map[shard.ID]*stored      // of the loaded shards
}

func newChange() *change {
	return &change{
		Change: engine.Change{Set: probe.Set{}, Memories: map[probe.ID]engine.Memory{}, Penalties: map[string]verdict.Penalty{}},
		units:  map[string]restart.Unit{}, restarts: map[string]restart.Memory{}, mayBeChanged: map[probe.ID]bool{}, shown: map[string]shown{}, told: map[string][]byte{}, toldOfGroups: map[string][]byte{}, shards: map[shard.ID]*Targets{}, stored: map[shard.ID]*stored{},
	}
}

// replace replaces the targets of a shard. It skips memories of probes and units that the shard does not have.
func (c *change) replace(id shard.ID, before, now *Targets, m memories) {
	c.shards[id] = now
	if now == nil {
		now = &Targets{}
	}
	if before == nil {
		before = &Targets{}
	}
	maps.Copy(c.Set, now.Probes)
	maps.Copy(c.units, now.Units)
	for target, t := range m {
		c.recall(now, target, t)
	}
	for p := range before.Probes {
		if _, kept := now.Probes[p]; !kept {
			c.Remove = append(c.Remove, p)
		}
	}
	for target := range before.Units {
		if _, kept := now.Units[target]; !kept {
			c.removedUnits = append(c.removedUnits, target)
		}
	}
}

// recall adds the memory of a target, limited to its current probes and unit, and of the group of the same name.
func (c *change) recall(now *Targets, target string, t *memory) {
	u, isUnit := now.Units[target]
	for _, p := range t.Probes {
		id, memory := p.id(target), p.Memory
		c.mayBeChanged[id] = memory.Proven != 0 || t.Restarts != nil && t.Restarts.Unproven
		if desired, exists := now.Probes[id]; !exists || memory.Check(desired.Rule) != nil {
			continue
		}
		if p.Cause != (cause{}) {
			memory.Warned, memory.Fault = memory.Warned || memory.State.Verdict == probe.Passing, p.Cause.fault(memory)
		}
		c.Memories[id] = memory
		if u.Driver == nil && memory.State.Instance != "" { // only its probes know its instance
			c.restarts[target] = restart.Memory{Instance: memory.State.Instance, Since: memory.InstanceSince}
		}
	}
	if isUnit {
		if t.Restarts != nil {
			c.restarts[target] = *t.Restarts
		}
		if t.Penalty != nil {
			c.Penalties[target] = *t.Penalty
		}
		if t.Shown != (shown{}) {
			c.shown[target] = t.Shown
		}
	}
	if !t.keepsTold && (isUnit || t.Notified != nil) { // otherwise receivers were not notified that it is gone
		c.told[target] = t.Notified
	}
	if !t.keepsToldOfGroup && (t.NotifiedOfGroup != nil || slices.Contains(now.Groups, target)) {
		c.toldOfGroups[target] = t.NotifiedOfGroup
	}
}

// added returns the probes that a change adds to this engine and that a new configuration may have changed. It omits
// probes that have never succeeded, so that this engine restarts their targets as the previous owner would.
func (c *change) added(p *engine.Planned) []engine.ProbeChange {
	return slices.DeleteFunc(p.Preview().Probes, func(one engine.ProbeChange) bool {
		return one.Action != engine.ProbeAdded || !c.mayBeChanged[one.ID]
	})
}

// change applies a change to the engine and the controller.
func (f *Fleet) change(c *change) error {
	if len(c.shards) == 0 {
		return nil
	}
	planned, err := f.owner.Plan(c.Change)
	if err != nil {
		return err
	}
	f.config.Restarts.Reloading(restart.Reload{Name: "a change before the takeover of the target", Changes: c.added(planned), Memories: c.restarts})
	planned.Commit()
	if err := f.config.Restarts.TakeOver(c.units, c.removedUnits, c.restarts); err != nil {
		return err
	}
	for target, s := range c.shown {
		f.config.Engine.Admin().RestateSince(target, s.State, s.Since)
	}
	f.setNotified(c)
	f.ledger.note(c)
	for id, targets := range c.shards {
		if targets != nil {
			f.others.remove(id)
			for _, of := range targets.joints() { // this engine may have decided it alone before
				f.doubts.probed(of.id.Target, verdictOf(f.config.Engine, of.id.Target, f.desired.decidesAlone))
			}
		}
	}
	return nil
}
