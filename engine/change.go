package engine

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// Change is a change of an engine's probes.
type Change struct {
	// Set has the probes to add or to change. All others stay as they are, or are removed if All is
	// set.
	Set probe.Set
	All bool

	// Remove has the probes to remove. Probes that do not exist are ignored. With All it must be empty.
	Remove []probe.ID

	// Memories has the memories of some probes of Set. A probe that the change adds
	// goes on with its memory: no reader and no subscriber ever sees it without.
	// A probe that exists already keeps its own state, which is newer.
	//
	// With a run of equal outcomes in its memory a probe keeps its regular times.
	// Without one (see Memory.Renewed) it is attempted at once, as on a new
	// instance. A memory about another instance than the one that is reported
	// starts again, as for any new instance. One about another endpoint does not know
	// the verdict, and one about another handler starts a new run: see Apply.
	Memories map[probe.ID]Memory

	// Dependencies say which targets depend on which others, by name, all of them: the probes are never seen
	// with others. A target that fails while one that it depends on is in trouble, or
	// is unreachable itself, is probe.StateUnreachable, and not in trouble: the other one is. That one may
	// be paused (see Admin.Pause), and would be in trouble otherwise.
	// That changes no verdict, and neither readiness nor what gateways are to do. A name need not
	// be that of a target: one that does not exist is not in trouble. It is an error if targets
	// depend on themselves, or on more than probe.MaxDependencies others. Default: nil, those that there are.
	Dependencies map[string][]string

	// Dampings say which targets are damped when they flap, by name, and how, all of them. A target flaps when it was
	// ready and no longer is, unless it is paused, another
	// target explains that, an operator has asked for it, or the engine doubts the probe that fails (see
	// Doubts). While it is damped, its probes and its verdicts go on. But its state is probe.StateDamped, which
	// is not one of trouble, gateways send it no requests, and Suppressed says that nothing is to be done about
	// it. A name need not be that of a target. A target keeps its penalty, as far as its new limits allow, and
	// has none if it is no longer named. Default: nil, those that there are.
	Dampings map[string]probe.Damping

	// Penalties are those with which targets go on that are damped when they flap: see Records.Penalty. With Dampings
	// these are the targets that have none, and without them those that have none or one of an earlier flap.
	Penalties map[string]verdict.Penalty
}

// Change makes a change: all of it or, if it returns an error, which names the
// probe and the field that are wrong, none. The result is that of an Apply of all the probes
// that there are afterwards, and its cost that of the probes in c. What it says about added, changed and
// removed probes is what Apply does; Changes.Kept counts probes of Set only.
func (e *Engine) Change(c Change) (Changes, error) {
	return e.change(e.own, func(p *plan) error { return p.change(&c) })
}

// checkMemories checks that each memory belongs to a probe of the change.
func (p *plan) checkMemories(c *Change) error {
	for id := range c.Memories {
		if _, ok := c.Set[id]; !ok {
			return fmt.Errorf("memory of probe %q: the probe is not in the set", id)
		}
	}
	return nil
}

// removeListed plans the removal of the probes in c.Remove.
func (p *plan) removeListed(c *Change) error {
	if c.All && len(c.Remove) > 0 {
		return errors.New("a change of all probes lists probes to remove")
	}
	listed := make(map[probe.ID]bool, len(c.Remove))
	for _, id := range c.Remove {
		if _, ok := c.Set[id]; ok {
			return fmt.Errorf("probe %q: is in the set, and is to be removed", id)
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

// memory returns the memory with which a new probe goes on, or nil.
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

// restore makes a new probe go on with its memory. No reader has the probe yet.
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

// restore makes an instance started that had started according to a memory, whether its
// driver has reported it yet or not.
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
