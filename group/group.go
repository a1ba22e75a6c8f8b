package group

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Rule selects the members of a group, sets how many must be ready, and determines to which of them a gateway sends
// requests. The zero Rule selects all targets, requires one to be ready, and treats all alike.
//
// A member with weight 0 gets no requests, whatever its state is. It does not count as ready, and it does not count towards
// the members on which MinReady, Panic and Quorum are based.
type Rule struct {
	// Members selects the members. A name without wildcards and without label conditions selects a member even if no such
	// target exists (yet): the member is then Undecided.
	Members probe.Selector

	MinReady probe.Minimum // how many members must be ready; default 1

	// HoldRestarts makes Groups.Acquire withhold the restart of a member that takes requests if
	// fewer than MinReady others do.
	HoldRestarts bool

	Port        string // port of the members for gateways: a number, or the name of a port of each target; default: none
	Weight      int    // weight of a ready member, 1 to probe.MaxWeight; default DefaultWeight
	WeightLabel string // label whose value, 0 (no requests) to probe.MaxWeight, overrides Weight for a target; default: none

	// Panic is a share of the members. While fewer take requests, all members that are not draining are in rotation: the
	// probes are then more likely to be wrong than nearly all members to be down. Default: never.
	Panic probe.Share

	// Quorum is the minimum number of members in rotation. If fewer take requests, draining members and those that went
	// down last stay in rotation. Default: 0.
	Quorum int

	// MaxEjected limits the members that are out of rotation because gateways have ejected them (see engine.Engine.Observe)
	// or because they are damped (see engine.Change.Dampings). It is a share of the members that take requests according to
	// their probes, rounded down. The members that were ejected first are taken out, the others stay. So failing requests,
	// which clients can cause, never take all or nearly all members out of rotation. 100% means no limit. Default: 50%.
	MaxEjected probe.Share

	// SlowStart is the time over which the weight of a member that comes into rotation grows to its full value.
	// DegradedWeight is the part of its weight that a degraded member has. While Panic, Quorum or MaxEjected keep members
	// in rotation that take no requests, all members have their full weights; otherwise the failing members would get the
	// most requests. Defaults: 0, 100%.
	SlowStart      time.Duration
	DegradedWeight probe.Share
}

// names reports whether the rule selects the target by name, so that it is a member even if it does not exist.
func (r *Rule) names(target string) bool { return !r.Members.HasLabels() && r.Members.Names()[target] }

// Group is a group of targets. Its methods are safe for concurrent use by multiple
// goroutines.
type Group struct {
	view  atomic.Pointer[View]
	picks atomic.Uint64 // number of members picked

	// Groups.mu guards what follows: the state from which the next View is made.
	rule       Rule
	members    draft
	counts     Counts // by State, without members of weight 0
	acting     Counts // by acting state, which decides about rotation; without members of weight 0
	zeroWeight int    // number of members with weight 0
	ejected    int    // members in counts that are down only because gateways have ejected them or because they are damped
	inRotation int
	withheld   int // number of members whose restart the group withholds
	plan       plan
	wait       wait
	slow       bool // a member is in its slow start
}

// newGroup returns a group without members. Versions start at the current time in microseconds, so that they keep
// growing when a new engine takes over.
func newGroup(name string, now time.Time) *Group {
	g := &Group{plan: plan{all: true}}
	g.view.Store(&View{Group: name, Version: uint64(now.UnixMicro()), Need: 1, Frozen: true, replaced: make(chan struct{})})
	return g
}

// View returns the current View with one atomic load.
func (g *Group) View() *View { return g.view.Load() }

// Next waits for a View with a Version other than after, and returns it, or the error of ctx. Given 0, or a version from an
// earlier engine, it returns immediately.
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

// put adds a target as a member, or updates its member. before is its previous member, or nil. It needs Groups.mu.
func (g *Group) put(o *observed, before *Member, now time.Time, isolated bool) {
	m := &Member{
		Target: o.target, Address: o.address, Port: o.port(g.rule.Port), Labels: o.labels,
		State: o.state, Since: o.since, Reason: o.reason, full: g.rule.fullWeight(o.labels), absent: o.absent, started: o.started,
	}
	m.ZeroWeight = m.full == 0
	var last *Member // the member in the View if it was absent only since then
	switch {
	case before == nil:
	case before.Address == m.Address && before.Port == m.Port:
		m.acting, m.serves, m.slowSince, m.InRotation = before.acting, before.serves, before.slowSince, before.InRotation
		if m.serves == 0 {
			last = g.view.Load().Member(m.Target)
		}
	default: // a member at another address or port is a new member
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

// act sets the state that decides whether a member is in rotation, from its current state. last is the member in the View,
// or nil: if it took requests there, it was absent only between two Views, which no gateway has noticed.
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

// nextVersion returns the version of the next View.
func (g *Group) nextVersion() uint64 { return g.view.Load().Version + 1 }

func (g *Group) count(m *Member) { g.add(m, 1) }

// add adds n times a member to the counts.
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

// uncount removes a member, unless it is nil, from the counts.
func (g *Group) uncount(m *Member) {
	if m != nil {
		g.add(m, -1)
	}
}

// lose records that a member is gone. If it took requests in the last View, other members have to take its requests.
func (g *Group) lose(m *Member) {
	if m != nil && m.serves > 0 && m.serves < g.nextVersion() {
		g.wait.lost++
	}
}

// drop removes a member, or makes it Undecided if the rule selects it by name. It needs Groups.mu.
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

// replan recomputes which members are in rotation if the plan has changed or all is true, and reports whether a new View
// is needed. It needs Groups.mu.
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

// isKnown reports whether the state of any member that counts is known, or all existing members have weight 0.
func (g *Group) isKnown() bool {
	total := g.acting.Total()
	return total > g.acting[probe.GatewayUndecided] || total == g.wait.absent && g.zeroWeight > 0
}

// isUsable reports whether a gateway can act on the known states.
func (g *Group) isUsable() bool { return g.wait.over && g.isKnown() }

// publish publishes a View of the current state, and returns the previous View and the new one. It needs Groups.mu.
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
