package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// withholds reports whether the group withholds the restart of a target while the instances of the reserved targets are
// being restarted. It does if the target may take requests and the group needs it. A target that is known to take no
// requests, or that has weight 0, may always be restarted: the group loses no capacity.
func (v *View) withholds(target string, reserved map[string]bool) bool {
	m := v.members.get(target)
	return m != nil && m.mayTakeRequests() && v.needs(target, reserved)
}

// needs reports whether fewer than Need members would take requests without the target and the reserved targets.
func (v *View) needs(target string, reserved map[string]bool) bool {
	m := v.members.get(target)
	if !v.Rule.HoldRestarts || m == nil || m.ZeroWeight {
		return false
	}
	left := v.Counts.Serving() - one(m.State.TakesRequests())
	for name := range reserved {
		if r := v.members.get(name); name != target && r != nil && !r.ZeroWeight && r.State.TakesRequests() {
			left--
		}
	}
	return left < v.Need
}

// mayTakeRequests reports whether requests may be sent to the member: it takes requests, it took them before its state
// became unknown, or its state is not known yet although it has started. The last case occurs after the engine starts;
// gateways may not have noticed the start.
func (m *Member) mayTakeRequests() bool {
	return m.State.TakesRequests() || m.acting.TakesRequests() || m.State == probe.GatewayUndecided && m.started
}

// restarts are the restarts of the engine's targets that groups have allowed or withhold. Groups.mu guards it.
type restarts struct {
	reserved map[string]reservation // by target; a reserved target does not count as taking requests
	withheld map[string]*Group      // by target: the group that withholds its restart
}

// reservation is a restart that may be in progress.
type reservation struct {
	instance string
	isFree   bool // no group may withhold it: it is forced, or the target took no requests
}

func newRestarts() restarts { return restarts{map[string]reservation{}, map[string]*Group{}} }

// Acquire returns the name of a group with Rule.HoldRestarts that withholds the restart of an instance: the target takes
// requests, and fewer than MinReady members would be left that take them. If no group withholds it, Acquire returns "" and
// reserves the restart: the target counts as taking no requests until another instance of it takes some, or Release is
// called. So of several restarts that would each be allowed alone, only as many are allowed as the groups can spare. While
// a reload changes the groups, every restart of a member of a group with HoldRestarts is withheld.
//
// A forced restart is reserved even if a group withholds it. Acquire may be called again for the same instance.
func (g *Groups) Acquire(target, instance string, forced bool) (withheldBy string) {
	g.mu.Lock()
	lines := g.follow(time.Now())
	by := g.withholding(target, (*View).withholds)
	if g.setWithheld(target, by); by != nil {
		withheldBy = by.name()
	}
	if (by == nil || forced) && len(g.floors(target)) > 0 {
		g.setWithheld(target, nil)
		g.restarts.reserved[target] = reservation{instance, forced || !g.mayTakeRequests(target)}
	}
	g.mu.Unlock()
	g.log(lines)
	return withheldBy
}

// Release cancels the reservation by Acquire: the restart is no longer wanted, or the instance keeps running.
func (g *Groups) Release(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetRestart(target)
}

// Floors returns the names of the groups with Rule.HoldRestarts that a target belongs to, sorted.
func (g *Groups) Floors(target string) (names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, group := range g.floors(target) {
		names = append(names, group.name())
	}
	return names
}

// WithheldBy returns the name of a group that withholds, given the current reservations, a restart that Acquire has
// allowed, or "". The target may have been reported as draining since: what counts is whether it took requests when Acquire
// was called. A forced restart is never withheld.
func (g *Groups) WithheldBy(target string) string {
	g.mu.Lock()
	lines := g.follow(time.Now())
	var by *Group
	if !g.restarts.reserved[target].isFree {
		by = g.withholding(target, (*View).needs)
	}
	g.mu.Unlock()
	g.log(lines)
	if by == nil {
		return ""
	}
	return by.name()
}

func (g *Group) name() string { return g.View().Group }

// floors returns the groups with Rule.HoldRestarts that a target belongs to, sorted by name. It needs mu.
func (g *Groups) floors(target string) (all []*Group) {
	t := g.targets[target]
	if t == nil {
		return nil
	}
	for _, group := range t.groups {
		if group.rule.HoldRestarts {
			all = append(all, group)
		}
	}
	slices.SortFunc(all, func(a, b *Group) int { return cmp.Compare(a.name(), b.name()) })
	return all
}

// mayTakeRequests reports whether requests may be sent to a target as a member of any group with
// Rule.HoldRestarts. It needs mu.
func (g *Groups) mayTakeRequests(target string) bool {
	return slices.ContainsFunc(g.floors(target), func(group *Group) bool {
		m := group.View().Member(target)
		return m == nil || m.mayTakeRequests()
	})
}

// withholding returns the first group by name whose View withholds the restart of a target now, or nil. It needs mu.
func (g *Groups) withholding(target string, withholds func(*View, string, map[string]bool) bool) *Group {
	for _, group := range g.floors(target) {
		reserved := map[string]bool{}
		for name := range g.restarts.reserved {
			reserved[name] = true
		}
		for _, name := range g.reserved(group.name()) {
			reserved[name] = true
		}
		if g.held > 0 || withholds(group.View(), target, reserved) {
			return group
		}
	}
	return nil
}

// setWithheld records the group that withholds the restart of a target, nil for none. It needs mu.
func (g *Groups) setWithheld(target string, by *Group) {
	before := g.restarts.withheld[target]
	if before == by {
		return
	}
	if before != nil {
		before.withheld--
		delete(g.restarts.withheld, target)
		g.markPresent(before)
	}
	if by != nil {
		by.withheld++
		g.restarts.withheld[target] = by
		g.markPresent(by)
	}
}

// markPresent calls mark unless the group has been removed. It needs mu.
func (g *Groups) markPresent(group *Group) {
	if g.byName[group.name()] == group {
		g.mark(group, false)
	}
}

// forgetRestart discards the reserved or withheld restart of a target. It needs mu.
func (g *Groups) forgetRestart(target string) {
	delete(g.restarts.reserved, target)
	g.setWithheld(target, nil)
}

// endRestart discards the reserved restart of a target if an instance other than the reserved
// one takes requests. It needs mu.
func (g *Groups) endRestart(target, instance string, state probe.GatewayState) {
	if reserved, ok := g.restarts.reserved[target]; ok && state.TakesRequests() && instance != reserved.instance {
		delete(g.restarts.reserved, target)
	}
}
