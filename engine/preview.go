package engine

import (
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Planned is a validated change that has not been made yet. Call Commit or Discard once. Until then all other changes to the
// engine's probes wait, while attempts continue.
type Planned struct {
	plan plan
	done bool
}

// Plan validates a change, and locks the engine's probes until Commit or Discard. It returns the same errors as Engine.Change.
func (e *Engine) Plan(c Change) (*Planned, error) {
	return e.plan(e.own, func(p *plan) error { return p.change(&c) })
}

// Commit makes the change, unless it was already committed or discarded. It cannot fail.
func (p *Planned) Commit() Changes {
	if p.done {
		return p.plan.counts
	}
	defer p.Discard() // also after a handler panicked
	own, e := p.plan.owner, p.plan.engine
	own.probes += p.plan.counts.Added - p.plan.counts.Removed
	p.plan.retain()
	for rest, targets := p.plan.changes, p.plan.targets; len(rest) > 0 || targets != nil; targets = nil {
		n := chunkOf(rest)
		e.scheduler.apply(rest[:n], targets)
		rest = rest[n:]
	}
	p.plan.release()
	return p.plan.counts
}

// Discard discards the change, unless it was committed.
func (p *Planned) Discard() {
	if !p.done {
		p.done = true
		p.plan.sweep()
		p.plan.engine.applyMu.Unlock()
	}
}

// Changes returns how many probes Commit would change.
func (p *Planned) Changes() Changes { return p.plan.counts }

// Preview returns the changes that Commit would make.
func (p *Planned) Preview() Preview {
	all := Preview{Changes: p.plan.counts, Probes: make([]ProbeChange, len(p.plan.changes))}
	for i, c := range p.plan.changes {
		all.Probes[i] = ProbeChange{c.id, c.action, c.moved, c.proven, c.failed}
	}
	slices.SortFunc(all.Probes, func(a, b ProbeChange) int { return a.ID.Compare(b.ID) })
	return all
}

// Preview describes the effect of a change.
type Preview struct {
	Changes Changes
	Probes  []ProbeChange // sorted by ID, without unchanged probes
}

// ProbeChange is the effect of a change on one probe.
type ProbeChange struct {
	ID     probe.ID
	Action Action
	Moved  bool // its endpoint changes: earlier results do not apply, so the probe becomes undecided
	Proven bool // the memory of an added probe says that attempts with this handler and rule succeeded, or an update changes neither
	Failed bool // it is added, and its memory has a failing verdict, with a handler and rule that had succeeded earlier
}

// Action is the effect of a change on a probe, as a word: see Changes.
type Action string

// The actions.
const (
	ProbeAdded    Action = "added"
	ProbeUpdated  Action = "updated"
	ProbeReplaced Action = "replaced"
	ProbeRemoved  Action = "removed"
)
