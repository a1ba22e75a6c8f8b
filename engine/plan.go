package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// change is one difference between the existing and the desired probes.
type change struct {
	action  Action
	id      probe.ID
	slot    *slot   // nil if the probe is added
	spec    *spec   // new spec; nil if the probe is removed
	before  *spec   // old spec; nil if the probe is added
	address string  // of the target
	host    string  // host that the handler connects to: see hostOf
	memory  *Memory // memory to resume from; nil if there is none, or unless the probe is added
	moved   bool    // the endpoint that is probed has changed
	proven  bool    // see ProbeChange
	failed  bool
	labels  bool // the target's labels have changed
}

// plan is a planned Apply or Change. It needs Engine.applyMu, which prevents other changes to the set of probes and to their
// specs and addresses.
type plan struct {
	engine   *Engine
	owner    *owner // owner of the changed probes
	memories map[probe.ID]Memory

	targets *targetSettings // new settings; nil if they do not change

	changes []change
	counts  Changes
	invalid invalidProbes
}

// draw draws a plan, and sorts its changes by target and ID. For each target, removals come last: if the only probe of a target
// is replaced by one with another ID, the target must not be without probes in between, since it would then be deleted and
// created again.
func (p *plan) draw(draw func(p *plan) error) error {
	err := draw(p)
	slices.SortFunc(p.changes, func(a, b change) int {
		return cmp.Or(strings.Compare(a.id.Target, b.id.Target), one(a.action == ProbeRemoved)-one(b.action == ProbeRemoved), a.id.Compare(b.id))
	})
	return err
}

// change plans a Change.
func (p *plan) change(c *Change) error {
	if err := p.checkMemories(c); err != nil {
		return err
	}
	p.memories = c.Memories
	if err := p.changeTargets(c); err != nil {
		return err
	}
	if err := p.compareSet(c.Set); err != nil {
		return err
	}
	if err := p.removeListed(c); err != nil || !c.All {
		return err
	}
	p.removeUnwanted(c.Set)
	return nil
}

// targetSettings are the settings of targets in a change, apart from their probes.
type targetSettings struct {
	dependencies *dependencies            // nil if they do not change
	dampings     map[string]probe.Damping // nil if they do not change
	penalties    map[string]verdict.Penalty
}

// changeTargets plans the changes to the settings of targets.
func (p *plan) changeTargets(c *Change) (err error) {
	if c.Dependencies == nil && c.Dampings == nil && c.Penalties == nil {
		return nil
	}
	p.targets = &targetSettings{penalties: c.Penalties}
	if c.Dependencies != nil {
		d := newDependencies(c.Dependencies)
		if err := d.check(); err != nil {
			return err
		}
		p.targets.dependencies = &d
	}
	if c.Dampings != nil {
		p.targets.dampings, err = checkedDampings(c.Dampings)
	}
	return err
}

// compareSet validates set, and plans the probes to add and to change.
func (p *plan) compareSet(set probe.Set) error {
	for id, desired := range set {
		if err := p.compare(id, &desired); err != nil {
			p.invalid = append(p.invalid, invalidProbe{id, err})
		}
	}
	return p.invalid.err()
}

// maxInvalidProbes is the maximum number of invalid probes in the error of Apply.
const maxInvalidProbes = 10

// invalidProbes are invalid probes with their errors, in random order.
type invalidProbes []invalidProbe

type invalidProbe struct {
	id  probe.ID
	err error
}

// err returns the joined errors of the first probes, sorted by ID, or nil.
func (v invalidProbes) err() error {
	slices.SortFunc(v, func(a, b invalidProbe) int { return a.id.Compare(b.id) })
	var errs []error
	for _, p := range v[:min(len(v), maxInvalidProbes)] {
		errs = append(errs, fmt.Errorf("probe %q: %w", p.id, p.err))
	}
	if more := len(v) - len(errs); more > 0 {
		errs = append(errs, fmt.Errorf("%d more probes are invalid", more))
	}
	return errors.Join(errs...)
}

// compare plans the change that a desired probe needs, if any.
func (p *plan) compare(id probe.ID, desired *probe.Probe) (err error) {
	defer func() {
		if r := recover(); r != nil { // the Endpoint method of a handler panicked
			err = fmt.Errorf("handler panicked in Endpoint: %v", r)
		}
	}()
	s := p.engine.registry.probe(id)
	c := change{id: id, slot: s}
	if s != nil {
		c.before = s.spec.Load()
		if err := p.mayChange(c.before); err != nil {
			return err
		}
	}
	if err := p.complete(id, desired, s == nil); err != nil {
		return err
	}
	c.address = desired.Target.Address
	if s != nil {
		c.labels = !maps.Equal(c.before.target.Labels, desired.Target.Labels)
	}
	if s == nil || c.labels {
		if err := probe.CheckLabels(desired.Target.Labels); err != nil {
			return err
		}
	}
	switch {
	case s == nil:
		p.counts.Added++
		c.action = ProbeAdded
		if c.memory, err = p.memory(id, desired); err != nil {
			return err
		}
		c.proven = c.memory != nil && c.memory.Proven != 0
		before := p.memories[id]
		c.failed = before.Proven != 0 && before.State.Verdict == probe.Failing
	case s.currentAddress() != c.address || !c.before.sameHandler(desired) || !c.before.sameTarget(desired):
		p.counts.Replaced++
		c.action, c.moved = ProbeReplaced, c.before.hasMoved(s.currentAddress(), desired)
	case c.before.rule != desired.Rule || c.labels || c.before.settings != desired.Settings || c.before.target.Static != desired.Target.Static,
		len(c.before.target.Ports) != len(desired.Target.Ports):
		p.counts.Updated++
		desired.Handler = c.before.configured
		c.action = ProbeUpdated
		c.proven = c.before.proof == proofOf(&desired.Rule, desired.HandlerName, desired.Revision)
	default:
		p.counts.Kept++
		return nil
	}
	if c.action != ProbeUpdated {
		c.host = hostOf(desired.Handler, desired.Target)
	}
	c.spec = p.engine.definitions.specOf(p.owner, desired)
	p.changes = append(p.changes, c)
	return nil
}

// complete fills in the defaults of a desired probe and validates it. It validates the ID only of new probes.
func (p *plan) complete(id probe.ID, desired *probe.Probe, isNew bool) error {
	if isNew {
		if err := id.Check(); err != nil {
			return err
		}
	}
	r := &desired.Rule
	if r.Kind != 0 && r.Kind != id.Kind {
		return fmt.Errorf("rule.kind is %v, which differs from the kind in the ID", r.Kind)
	}
	if desired.Target.Name != "" && desired.Target.Name != id.Target {
		return fmt.Errorf("target.name is %q, which differs from the target in the ID", desired.Target.Name)
	}
	if desired.Handler == nil {
		return errors.New("handler must not be nil")
	}
	r.Kind, desired.Target.Name = id.Kind, id.Target
	*r = r.WithDefaults()
	if r.Compatibility == probe.Mended {
		r.Compatibility = p.engine.conf.Compatibility
	}
	return r.Check()
}

// mayChange returns an error if a probe with spec sp belongs to another owner.
func (p *plan) mayChange(sp *spec) error {
	if sp.owner != p.owner {
		return fmt.Errorf("belongs to %v, not to %v", sp.owner, p.owner)
	}
	return nil
}

// removeUnwanted plans the removal of all probes of the owner that are not in set. compareSet must have been called with set.
func (p *plan) removeUnwanted(set probe.Set) {
	if n := &p.counts; p.owner.probes == n.Kept+n.Updated+n.Replaced {
		return
	}
	for t := range p.engine.registry.walk(context.Background(), "") {
		for _, s := range t.slots {
			if _, ok := set[s.id()]; !ok && s.spec.Load().owner == p.owner {
				p.remove(s)
			}
		}
	}
}

func (p *plan) remove(s *slot) {
	p.counts.Removed++
	p.changes = append(p.changes, change{action: ProbeRemoved, id: s.id(), slot: s, before: s.spec.Load()})
}

// retain counts the probes of each spec before their first attempts. It creates a handler for each probe of a StatefulHandler; a
// probe that is only updated keeps its handler.
func (p *plan) retain() {
	sc := p.engine.scheduler
	for _, c := range p.changes {
		switch {
		case c.spec == nil:
			continue
		case c.spec.handler != nil:
		case c.action == ProbeUpdated:
			c.spec.use(c.before.handler)
		default:
			c.spec.use(c.spec.configured.(probe.StatefulHandler).ForProbe())
		}
		if c.spec.users++; c.spec.users == 1 {
			sc.mu.Lock()
			sc.closers.retain(c.spec)
			sc.unlock()
		}
	}
}

// sweep drops the old and new specs of the changes that no probe uses.
func (p *plan) sweep() {
	for _, c := range p.changes {
		p.engine.definitions.drop(c.before)
		p.engine.definitions.drop(c.spec)
	}
}

// release closes the handlers that no probe uses any more, once their attempts have finished.
func (p *plan) release() {
	sc := p.engine.scheduler
	for _, c := range p.changes {
		if c.before == nil {
			continue
		}
		if c.before.users--; c.before.users == 0 {
			sc.mu.Lock()
			sc.closers.release(c.before)
			sc.unlock()
		}
	}
}
