package group

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Rule says which targets are members of a group, and how many must be ready. The zero
// Rule is that of all targets, one of which must be ready.
type Rule struct {
	// Members selects the members. A name without wildcards, and without conditions on
	// labels beside it, names a member even if there is no such target (yet): its state is
	// Undecided then.
	Members probe.Selector

	MinReady probe.Minimum // how many members must be ready; default 1
}

// names reports whether the rule names a member whether it exists or not.
func (r *Rule) names(target string) bool { return !r.Members.HasLabels() && r.Members.Names()[target] }

// Group is a group of targets. Its methods are safe for concurrent use by multiple
// goroutines.
type Group struct {
	view atomic.Pointer[View]

	// Groups.mu guards what follows: what the next View is made of.
	rule    Rule
	members members
	counts  Counts
}

// newGroup returns a group without members. Versions begin at the present time in
// microseconds, so that they grow from one engine to the next.
func newGroup(name string, now time.Time) *Group {
	g := &Group{}
	g.view.Store(&View{Group: name, Version: uint64(now.UnixMicro()), Need: 1, replaced: make(chan struct{})})
	return g
}

// View returns the present View, by one atomic load.
func (g *Group) View() *View { return g.view.Load() }

// Next waits for a View with another Version than after, and returns it, or the error of
// ctx. With the version of an earlier engine, or 0, it returns at once.
func (g *Group) Next(ctx context.Context, after uint64) (*View, error) {
	for {
		v := g.view.Load()
		if v.Version != after {
			return v, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-v.replaced:
		}
	}
}

// put makes m a member, or replaces the one of its name. It needs Groups.mu.
func (g *Group) put(m *Member) {
	if before := g.members.get(m.Target); before != nil {
		g.counts[before.State]--
	}
	g.counts[m.State]++
	g.members = g.members.put(m)
}

// drop removes a member, or makes it Undecided if the rule names it. It needs Groups.mu.
func (g *Group) drop(target string, now time.Time) {
	if g.rule.names(target) {
		g.put(&Member{Target: target, Since: now})
		return
	}
	g.counts[g.members.get(target).State]--
	g.members = g.members.remove(target)
}

// publish publishes a View of what has changed, and returns it and the one before. It
// needs Groups.mu.
func (g *Group) publish(now time.Time, removed bool) (before, after *View) {
	before = g.view.Load()
	need := g.rule.MinReady.Of(g.counts.Total())
	v := &View{
		Group: before.Group, Version: before.Version + 1, Rule: g.rule,
		State: decide(g.counts, need), Last: before.Last, Since: before.Since, Need: need, Counts: g.counts,
		Removed: removed, members: g.members, replaced: make(chan struct{}),
	}
	if v.State != Undecided && v.State != v.Last {
		v.Last, v.Since = v.State, now
	}
	g.view.Store(v)
	close(before.replaced)
	return before, v
}
