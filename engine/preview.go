package engine

import (
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Planned is a change that was checked, and not made yet. Call Commit or Discard once: until then every other change of the
// engine's probes waits, while attempts go on.
type Planned struct {
	plan plan
	done bool
}

// Plan checks a change, and locks the engine's probes until Commit or Discard. Its errors are those of Engine.Change.
func (e *Engine) Plan(c Change) (*Planned, error) {
	return e.plan(e.own, func(p *plan) error { return p.change(&c) })
}

// Commit makes the change, unless it was committed or discarded. It cannot fail.
func (p *Planned) Commit() Changes {
	if p.done {
		return p.plan.counts
	}
	defer p.Discard() // also after a panic of a handler
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

// Discard forgets the change, unless it was committed.
func (p *Planned) Discard() {
	if !p.done {
		p.done = true
		p.plan.sweep()
		p.plan.engine.applyMu.Unlock()
	}
}

// Changes counts the probes that Commit would change.
func (p *Planned) Changes() Changes { return p.plan.counts }

// Preview returns what Commit would do.
func (p *Planned) Preview() Preview {
	all := Preview{Changes: p.plan.counts, Probes: make([]ProbeChange, len(p.plan.changes))}
	for i, c := range p.plan.changes {
		all.Probes[i] = ProbeChange{c.id, c.action, c.moved, c.proven, c.failed}
	}
	slices.SortFunc(all.Probes, func(a, b ProbeChange) int { return a.ID.Compare(b.ID) })
	return all
}

// Preview is what a change would do.
type Preview struct {
	Changes Changes
	Probes  []ProbeChange // sorted by ID; those that are kept are not among them
}

// ProbeChange is what would become of a probe.
type ProbeChange struct {
	ID     probe.ID
	Action Action
	Moved  bool // its endpoint is another one: what was known is not true there, so the probe is undecided
	Proven bool // attempts with this handler and rule have succeeded: as its memory says of one that is added; or neither changes
	Failed bool // it is added, and its memory has a failing verdict of a handler and rule that had succeeded before
}

// Action is what a change does to a probe, as a word: see Changes.
type Action string

// The actions.
const (
	ProbeAdded    Action = "added"
	ProbeUpdated  Action = "updated"
	ProbeReplaced Action = "replaced"
	ProbeRemoved  Action = "removed"
)
