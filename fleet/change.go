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
	mayBeChanged map[probe.ID]bool         // the probes that have succeeded, perhaps with another definition, or whose targets wait at their owner after a reload
	shown        map[string]shown          // by target: since when it is in its state
	told         map[string][]byte         // by target: what receivers know of it
	toldOfGroups map[string][]byte         // by group
	shards       map[shard.ID]*Targets     // that there are afterwards; nil: none
	stored       map[shard.ID]*stored      // of those that were loaded
}

func newChange() *change {
	return &change{
		Change: engine.Change{Set: probe.Set{}, Memories: map[probe.ID]engine.Memory{}, Penalties: map[string]verdict.Penalty{}},
		units:  map[string]restart.Unit{}, restarts: map[string]restart.Memory{}, mayBeChanged: map[probe.ID]bool{}, shown: map[string]shown{}, told: map[string][]byte{}, toldOfGroups: map[string][]byte{}, shards: map[shard.ID]*Targets{}, stored: map[shard.ID]*stored{},
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

// recall adds the memory of a target, as far as it is about the probes and the unit that there are now, and of a group of its name.
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
		if u.Driver == nil && memory.State.Instance != "" { // its instance is known by its probes only
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
	if !t.keepsTold && (isUnit || t.Notified != nil) { // or else receivers have not been told that it is gone
		c.told[target] = t.Notified
	}
	if !t.keepsToldOfGroup && (t.NotifiedOfGroup != nil || slices.Contains(now.Groups, target)) {
		c.toldOfGroups[target] = t.NotifiedOfGroup
	}
}

// added returns the probes that a change adds to this engine, except those of which nothing says that a configuration has changed
// them: one that fails and has never succeeded is restarted by this engine as by the one before.
func (c *change) added(p *engine.Planned) []engine.ProbeChange {
	return slices.DeleteFunc(p.Preview().Probes, func(one engine.ProbeChange) bool {
		return one.Action != engine.ProbeAdded || !c.mayBeChanged[one.ID]
	})
}

// change makes a change of the engine and of the controller.
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
			for _, of := range targets.joints() { // which this engine may have decided alone before
				f.doubts.probed(of.id.Target, verdictOf(f.config.Engine, of.id.Target, f.desired.decidesAlone))
			}
		}
	}
	return nil
}
