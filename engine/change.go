package engine

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// Change is a change to an engine's probes.
type Change struct {
	// Set has the probes to add or to change. Other probes do not change; if All is set, they are removed.
	Set probe.Set
	All bool

	// Remove has the probes to remove. Nonexistent probes are ignored. If All is set, Remove must be empty.
	Remove []probe.ID

	// Memories has the memories of probes in Set. An added probe resumes from its memory: readers and subscribers never see the
	// probe without it. A probe that already exists keeps its own, newer state.
	//
	// If its memory has a run of equal outcomes, a probe keeps its regular times. Otherwise (see Memory.Renewed) it is attempted
	// immediately, as on a new instance. If the memory is about another instance than the reported one, the probe starts over, as
	// for any new instance. If it is about another endpoint, the probe becomes undecided; if it is about another handler, the
	// probe starts a new run: see Apply.
	Memories map[probe.ID]Memory

	// Dependencies maps the name of each target to the names of all targets that it depends on. It replaces all previous
	// dependencies, and takes effect together with the changes to probes. If a target fails while a target that it depends on is
	// in trouble or unreachable, its state is probe.StateUnreachable, which is not a state of trouble. This also applies if the
	// dependency is paused (see Admin.Pause) and would be in trouble otherwise. Dependencies affect neither verdicts nor
	// readiness nor gateways. Names of nonexistent targets are permitted; such a target is not in trouble. It is an error if a
	// target depends on itself, even indirectly, or on more than probe.MaxDependencies targets. Default: nil, which keeps the
	// existing dependencies.
	Dependencies map[string][]string

	// Dampings maps the name of each target to be damped to its damping; it replaces all previous dampings. A target flaps when
	// it ceases to be ready, unless it is paused, another target explains the failure, an operator requested it, or the engine
	// doubts the failing probe (see Doubts). While a target is damped, its probes and verdicts continue, but its state is
	// probe.StateDamped, which is not a state of trouble, gateways send it no requests, and Suppressed reports that no action is
	// to be taken. Names of nonexistent targets are permitted. A target keeps its penalty, as far as its new limits allow, and
	// loses it if Dampings no longer contains the target. Default: nil, which keeps the existing dampings.
	Dampings map[string]probe.Damping

	// Penalties has the penalties to restore for damped targets: see Records.Penalty. With Dampings, it applies to targets
	// without a penalty; otherwise also to targets whose penalty is from an earlier flap.
	Penalties map[string]verdict.Penalty
}

// Change makes a change, completely or, if it returns an error, not at all. The error names the invalid probe and field. The
// result is the same as for an Apply of all resulting probes, but the cost depends only on the number of probes in c. Added,
// changed and removed probes are treated as by Apply; Changes.Kept counts only probes in Set.
func (e *Engine) Change(c Change) (Changes, error) {
	return e.change(e.own, func(p *plan) error { return p.change(&c) })
}

// checkMemories returns an error if a memory belongs to a probe that is not in the change.
func (p *plan) checkMemories(c *Change) error {
	for id := range c.Memories {
		if _, ok := c.Set[id]; !ok {
			return fmt.Errorf("memory of probe %q: the probe is not in Set", id)
		}
	}
	return nil
}

// removeListed plans the removal of the probes in c.Remove.
func (p *plan) removeListed(c *Change) error {
	if c.All && len(c.Remove) > 0 {
		return errors.New("invalid change: Remove must be empty if All is set")
	}
	listed := make(map[probe.ID]bool, len(c.Remove))
	for _, id := range c.Remove {
		if _, ok := c.Set[id]; ok {
			return fmt.Errorf("probe %q is in both Set and Remove", id)
		}
		if s := p.engine.registry.probe(id); s != nil && !listed[id] {
			if err := p.mayChange(s.spec.Load()); err != nil {
				return fmt.Errorf("probe %q: %w", id, err)
			}
			listed[id] = true
			p.remove(s)
		}
	}
	return nil
}

// memory returns the memory that a new probe resumes from, or nil.
func (p *plan) memory(id probe.ID, desired *probe.Probe) (*Memory, error) {
	m, ok := p.memories[id]
	if !ok || m.State == (verdict.State{}) && m.Proven == 0 {
		return nil, nil
	}
	var err error
	m.State, err = verdict.Restore(desired.Rule, m.State)
	m.adopt(id.Kind, desired)
	return &m, err
}

// restore sets the state of a new probe from its memory. The probe must not be visible to readers yet.
func (s *slot) restore(m *Memory, c *clock.Clock) {
	s.marks.set(markProven, m.Proven != 0)
	if m.State == (verdict.State{}) {
		return
	}
	now := c.Now()
	s.state, s.changes = m.State, m.Changes
	if s.since = c.At(m.Since); s.since == 0 || s.since > now {
		s.since = now
	}
	if s.rare != nil {
		s.rare.gauge.set(m.State.Verdict)
	}
	s.flags.set(resumed, m.State.Last != probe.Unknown || m.State.OnHold)
	s.decided = verdict.Decided(s.spec.Load().rule, m.State)
	s.setWarnings(verdict.Warnings{Warns: m.Warned && m.State.Verdict == probe.Passing})
	s.forgetFault()
	if f := &m.Fault; f.Exists() {
		reason := probe.Reason(probe.OneLine(string(f.Reason), maxFaultDetail))
		s.noteFault(fault{min(c.At(f.At), now), reason, probe.CleanText(f.Detail, maxFaultDetail), f.Outcome})
	}
}

// restore marks the target's instance as started if it had started according to a memory, whether or not its driver has reported
// the instance yet.
func (t *target) restore(m *Memory, c *clock.Clock) {
	in := t.current()
	switch {
	case m.State.Instance == "":
	case in == &noInstance:
		t.instance.Store(&instance{id: m.State.Instance, since: c.At(m.InstanceSince), started: m.Started, restored: true})
	case m.Started && in.id == m.State.Instance && !in.started:
		started := *in
		started.started = true
		t.instance.Store(&started)
	}
}
