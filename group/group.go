package group

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Rule says which targets are members of a group, how many must be ready, and which of them
// a gateway sends requests to. The zero Rule is that of all targets, one of which must be
// ready, and which are all alike.
//
// A member of the weight 0 gets no requests, whatever its state is, as an operator wants who
// gives it that weight. So it counts for nothing: not as one that is ready, nor as one of the
// members of which MinReady, Panic and Quorum want some.
type Rule struct {
	// Members selects the members. A name without wildcards, and without conditions on
	// labels beside it, names a member even if there is no such target (yet): its state is
	// Undecided then.
	Members probe.Selector

	MinReady probe.Minimum // how many members must be ready; default 1

	// HoldRestarts says that Groups.Acquire withholds the restart of a member that takes requests while fewer than
	// MinReady others do.
	HoldRestarts bool

	Port        string // of the members for gateways: a number, or the name of a port of each target; default: none
	Weight      int    // of a member that is ready, 1 to probe.MaxWeight; default DefaultWeight
	WeightLabel string // label with the weight of a target, 0 (no requests) to probe.MaxWeight, where it differs; default: none

	// Panic is the share of the members under which all are in rotation, but those that are
	// draining: then it is likelier that the probes are wrong than that nearly all members
	// are. Default: never.
	Panic probe.Share

	// Quorum is how many members are in rotation at least: if fewer take requests, those
	// that are draining, and those that were the last to go down, stay. Default: 0.
	Quorum int

	// MaxEjected is the share of the members that take requests by their probes that may be out
	// of rotation because gateways have ejected them (see engine.Engine.Observe), or because they are
	// damped (see engine.Change.Dampings), rounded down:
	// those that were ejected first are, the others stay. So requests that fail, which clients
	// may send, never take all members out, or nearly all. 100% is no bound. Default: 50%.
	MaxEjected probe.Share

	// SlowStart is the time within which the weight of a member grows that comes into rotation, and
	// DegradedWeight is which part of its weight a degraded member has. All have their full weights
	// while Panic, Quorum or MaxEjected keep members in rotation that take no requests, which would
	// get the most otherwise. Defaults: 0, 100%.
	SlowStart      time.Duration
	DegradedWeight probe.Share
}

// names reports whether the rule names a member whether it exists or not.
func (r *Rule) names(target string) bool { return !r.Members.HasLabels() && r.Members.Names()[target] }

// Group is a group of targets. Its methods are safe for concurrent use by multiple
// goroutines.
type Group struct {
	view  atomic.Pointer[View]
	picks atomic.Uint64 // how many members were picked

	// Groups.mu guards what follows: what the next View is made of.
	rule       Rule
	members    draft
	counts     Counts // by State, without those of the weight 0
	acting     Counts // likewise, by the state that decides about rotation
	zeroWeight int    // members of the weight 0
	ejected    int    // members in counts that are down only because gateways have ejected them, or they are damped
	inRotation int
	withheld   int // members whose restart the group withholds
	plan       plan
	wait       wait
	slow       bool // some member is in its slow start
}

// newGroup returns a group without members. Versions begin at the present time in
// microseconds, so that they grow from one engine to the next.
func newGroup(name string, now time.Time) *Group {
	g := &Group{plan: plan{all: true}}
	g.view.Store(&View{Group: name, Version: uint64(now.UnixMicro()), Need: 1, Frozen: true, replaced: make(chan struct{})})
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

// put makes a target a member, or renews it. Before is the member that it was, or nil. It
// needs Groups.mu.
func (g *Group) put(o *observed, before *Member, now time.Time, isolated bool) {
	m := &Member{
		Target: o.target, Address: o.address, Port: o.port(g.rule.Port), Labels: o.labels,
		State: o.state, Since: o.since, Reason: o.reason, full: g.rule.fullWeight(o.labels), absent: o.absent, started: o.started,
	}
	m.ZeroWeight = m.full == 0
	var last *Member // in the View, if it may have been away since then only
	switch {
	case before == nil:
	case before.Address == m.Address && before.Port == m.Port:
		m.acting, m.serves, m.slowSince, m.InRotation = before.acting, before.serves, before.slowSince, before.InRotation
		if m.serves == 0 {
			last = g.view.Load().Member(m.Target)
		}
	default: // elsewhere it is another one
		g.lose(before)
	}
	g.act(m, last, o, now, isolated)
	m.InRotation, m.Weight = g.rule.place(m, g.plan, now)
	if g.wait.began.IsZero() && !m.absent {
		g.wait.began = now
	}
	g.slow = g.slow || slowShare(m.slowSince, now, g.rule.SlowStart) < 1
	g.uncount(g.members.get(m.Target))
	g.count(m)
	g.members.put(m)
}

// act sets the state by which a member is in rotation or not, from its present state. Last is the member in the View, or
// nil: one that took requests there has been away between two Views only, which no gateway has seen.
func (g *Group) act(m, last *Member, o *observed, now time.Time, isolated bool) {
	m.acting = actingState(m.acting, m.State, o.doubtful, isolated)
	m.ejected = m.acting == probe.GatewayDown && o.ejected
	switch {
	case m.ZeroWeight || !m.acting.TakesRequests():
		m.slowSince, m.serves = time.Time{}, 0
	case m.serves == 0 && last != nil && last.serves > 0 && last.Address == m.Address && last.Port == m.Port:
		m.serves, m.slowSince = last.serves, last.slowSince
	case m.serves == 0:
		m.serves = g.nextVersion()
		if !m.InRotation && g.wait.over && g.rule.SlowStart > 0 {
			m.slowSince = now
		}
	}
}

// nextVersion is the version of the next View.
func (g *Group) nextVersion() uint64 { return g.view.Load().Version + 1 }

func (g *Group) count(m *Member) { g.add(m, 1) }

// add adds a member n times to what is counted.
func (g *Group) add(m *Member, n int) {
	if m.ZeroWeight {
		g.zeroWeight += n
		return
	}
	g.counts[m.State] += n
	g.acting[m.acting] += n
	if m.InRotation {
		g.inRotation += n
	}
	if m.ejected {
		g.ejected += n
	}
	if m.absent {
		g.wait.absent += n
	}
	if m.serves == g.nextVersion() {
		g.wait.joined += n
	}
}

// uncount takes a member back, if there is one.
func (g *Group) uncount(m *Member) {
	if m != nil {
		g.add(m, -1)
	}
}

// lose notes that a member is no longer there. One that took requests in the last View is
// missed: others have to take these.
func (g *Group) lose(m *Member) {
	if m != nil && m.serves > 0 && m.serves < g.nextVersion() {
		g.wait.lost++
	}
}

// drop removes a member, or makes it Undecided if the rule names it. It needs Groups.mu.
func (g *Group) drop(target string, now time.Time) {
	before := g.members.get(target)
	g.lose(before)
	if g.rule.names(target) {
		g.put(absent(target, now), nil, now, false)
		return
	}
	g.uncount(before)
	g.members.remove(target)
}

// replan decides which members are in rotation if others than before are by the plan, or if
// all is true, and reports whether there has to be another View. It needs Groups.mu.
func (g *Group) replan(now time.Time, all bool) (changed bool) {
	if g.settle(now) {
		all, changed = true, true
	}
	next := plan{all: !g.isUsable() || g.rule.panics(g.acting)}
	if !next.all {
		next.extra = g.rule.fill(g.acting, g.ejected, g.members.current())
	}
	if !all && next.equal(g.plan) {
		return false
	}
	g.plan, g.slow = next, false
	g.members.update(func(m *Member) *Member {
		in, weight := g.rule.place(m, next, now)
		g.slow = g.slow || slowShare(m.slowSince, now, g.rule.SlowStart) < 1
		if in == m.InRotation && weight == m.Weight {
			return m
		}
		changed = true
		c := *m
		c.InRotation, c.Weight = in, weight
		g.uncount(m)
		g.count(&c)
		return &c
	})
	return changed
}

// isKnown reports whether something is known about any member that counts, or that none does:
// all have the weight 0.
func (g *Group) isKnown() bool {
	total := g.acting.Total()
	return total > g.acting[probe.GatewayUndecided] || total == g.wait.absent && g.zeroWeight > 0
}

// isUsable reports whether a gateway can act on what is known.
func (g *Group) isUsable() bool { return g.wait.over && g.isKnown() }

// publish publishes a View of what has changed, and returns it and the one before. It
// needs Groups.mu.
func (g *Group) publish(now time.Time, isolated, removed bool) (before, after *View) {
	before = g.view.Load()
	need := g.rule.MinReady.Of(g.counts.Total())
	v := &View{
		Group: before.Group, Version: before.Version + 1, Rule: g.rule,
		State: decide(g.counts, g.zeroWeight, need), Last: before.Last, Since: before.Since,
		Need: need, Counts: g.counts, ZeroWeight: g.zeroWeight,
		Frozen: isolated || !g.isUsable(), InRotation: g.inRotation, Panicking: g.isUsable() && g.plan.all,
		RestartsWithheld: g.withheld, Removed: removed, members: g.members.current(), replaced: make(chan struct{}),
	}
	if v.State != probe.GatewayUndecided && v.State != v.Last {
		v.Last, v.Since = v.State, now
	}
	g.wait.joined, g.wait.lost = 0, 0
	g.view.Store(v)
	close(before.replaced)
	return before, v
}
