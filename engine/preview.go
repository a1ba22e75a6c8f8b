package engine

import (
	"fmt"
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Preview is what an Apply would do.
type Preview struct {
	Changes Changes
	Probes  []ProbeChange // sorted by ID; those that are kept are not among them
}

// ProbeChange is what would become of a probe.
type ProbeChange struct {
	ID     probe.ID
	Action Action
	Moved  bool // its endpoint is another one: what was known is not true there, so the probe is undecided
}

// Action is what a change does to a probe: see Changes.
type Action uint8

// The actions.
const (
	ProbeAdded Action = iota
	ProbeUpdated
	ProbeReplaced
	ProbeRemoved
)

var actionNames = [...]string{"added", "updated", "replaced", "removed"}

// String returns the action as a word, such as "added".
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("invalid(%d)", uint8(a))
}

// PreviewApply returns what Apply would do now, or its error, and changes nothing.
func (e *Engine) PreviewApply(set probe.Set) (Preview, error) {
	e.applyMu.Lock()
	defer e.applyMu.Unlock()
	p := plan{engine: e, owner: e.own}
	defer p.sweep()
	if err := p.draw(func(p *plan) error { return p.apply(set) }); err != nil {
		return Preview{}, err
	}
	all := Preview{Changes: p.counts, Probes: make([]ProbeChange, len(p.changes))}
	for i, c := range p.changes {
		all.Probes[i] = ProbeChange{c.id, c.action, c.moved}
	}
	slices.SortFunc(all.Probes, func(a, b ProbeChange) int { return a.ID.Compare(b.ID) })
	return all, nil
}
