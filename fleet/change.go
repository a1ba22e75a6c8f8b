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

// change collects what is to be changed for several shards.
type change struct {
	engine.Change
	units        map[string]restart.Unit
	removedUnits []string
	restarts     map[string]restart.Memory // of units
	shown        map[string]shown          // by target: since when it is in its state
	told         map[string][]byte         // by target: what receivers know of it
	toldOfGroups map[string][]byte         // by group
	shards       map[shard.ID]*Targets     // that there are afterwards; nil: none
	stored       map[shard.ID]*stored      // of those that were loaded
}

func newChange() *change {
	return &change{
		Change: engine.Change{Set: probe.Set{}, Memories: map[probe.ID]engine.Memory{}, Penalties: map[string]verdict.Penalty{}},
		units:  map[string]restart.Unit{}, restarts: map[string]restart.Memory{}, shown: map[string]shown{}, told: map[string][]byte{}, toldOfGroups: map[string][]byte{}, shards: map[shard.ID]*Targets{}, stored: map[shard.ID]*stored{},
	}
}

// replace replaces the targets of a shard. Memories that are none of its probes and units are left out.
func (c *change) replace(id shard.ID, before, now *Targets, m memories) {
	c.shards[id] = now
	if now == nil {
		now = &Targets{}
	}
	if before == nil {
		before = &Targets{}
	}
	for p, desired := range now.Probes {
		c.Set[p] = desired
		memory, ok := m.probes[p]
		if !ok || memory.Check(desired.Rule) != nil {
			continue
		}
		why, hasCause := m.causes[p]
		memory.Warned = memory.Warned || hasCause && memory.State.Verdict == probe.Passing
		if hasCause {
			memory.Fault = why.fault(memory)
		}
		c.Memories[p] = memory
		if now.Units[p.Target].Driver == nil { // its instance is known by its probes only
			c.restarts[p.Target] = restart.Memory{Instance: memory.State.Instance, Since: memory.InstanceSince}
		}
	}
	for p := range before.Probes {
		if _, kept := now.Probes[p]; !kept {
			c.Remove = append(c.Remove, p)
		}
	}
	maps.Copy(c.units, now.Units)
	for target := range now.Units {
		if memory, ok := m.restarts[target]; ok {
			c.restarts[target] = memory
		}
		if s, ok := m.shown[target]; ok {
			c.shown[target] = s
		}
		if penalty, ok := m.penalties[target]; ok {
			c.Penalties[target] = penalty
		}
	}
	for target, told := range m.told {
		if _, exists := now.Units[target]; exists || told != nil { // or else receivers have not been told that it is gone
			c.told[target] = told
		}
	}
	for group, told := range m.toldOfGroups {
		if told != nil || slices.Contains(now.Groups, group) {
			c.toldOfGroups[group] = told
		}
	}
	for target := range before.Units {
		if _, kept := now.Units[target]; !kept {
			c.removedUnits = append(c.removedUnits, target)
		}
	}
}

// change makes a change of the engine and of the controller.
func (f *Fleet) change(c *change) error {
	if len(c.shards) == 0 {
		return nil
	}
	if _, err := f.owner.Change(c.Change); err != nil {
		return err
	}
	if err := f.config.Restarts.TakeOver(c.units, c.removedUnits, c.restarts); err != nil {
		return err
	}
	for target, s := range c.shown {
		f.config.Engine.Admin().RestateSince(target, s.State, s.Since)
	}
	f.setTold(c)
	f.ledger.note(c)
	for id, targets := range c.shards {
		if targets != nil {
			f.others.remove(id)
			for _, of := range targets.joints() { // which this engine may have decided alone before
				f.doubts.probed(of.id.Target, verdictOf(f.config.Engine, of.id.Target, f.desired.decidesAlone))
			}
		}
	}
	return nil
}
