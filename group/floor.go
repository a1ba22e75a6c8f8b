package group

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// withholds reports whether the group withholds the restart of a target, while the instances of reserved targets are
// being restarted: the target takes requests, and fewer than Need others would be left that do, without the reserved
// ones. One that takes no requests may always be restarted, since that takes nothing away; so may one of the weight 0.
func (v *View) withholds(target string, reserved iter.Seq[string]) bool {
	m := v.members.get(target)
	if !v.Rule.HoldRestarts || m == nil || m.ZeroWeight || !m.takesRequests() {
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

// takesRequests reports whether requests are sent to the member, also while that stays so because nothing is known of it.
func (m *Member) takesRequests() bool { return m.State.TakesRequests() || m.acting.TakesRequests() }

// restarts are those of the engine's targets that groups have allowed or withhold. Groups.mu guards it.
type restarts struct {
	reserved map[string]string // by target: the instance that is being restarted; it does not count as one that takes requests
	withheld map[string]*Group // by target: the group that withholds its restart
}

func newRestarts() restarts { return restarts{map[string]string{}, map[string]*Group{}} }

// Reserve returns the name of a group with Rule.HoldRestarts that withholds the restart of an instance: the target
// takes requests, and fewer than MinReady members would be left that do. If none does, Reserve returns "", and the
// instance counts as one that takes no requests until another one of its target does, or Release is called: of several
// restarts that would each be allowed alone, only as many are as the groups can do without. While a reload changes the
// groups, each restart is withheld of a member of one that withholds any.
//
// A forced restart is reserved although a group withholds it. Reserve may be called again for the same instance.
func (g *Groups) Reserve(target, instance string, forced bool) (withheldBy string) {
	g.mu.Lock()
	lines := g.follow(time.Now())
	by := g.withholding(target)
	if g.setWithheld(target, by); by != nil {
		withheldBy = by.View().Group
	}
	if t := g.targets[target]; t != nil && (by == nil || forced) && slices.ContainsFunc(t.groups, func(o *Group) bool { return o.rule.HoldRestarts }) {
		g.setWithheld(target, nil)
		g.restarts.reserved[target] = instance
	}
	g.mu.Unlock()
	g.log(lines)
	return withheldBy
}

// Release says that the restart of a target that Reserve was asked for is no longer wanted, or that its instance goes on.
func (g *Groups) Release(target string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetRestart(target)
}

// withholding returns the first group, by name, that withholds the restart of a target now; nil if none does. It needs mu.
func (g *Groups) withholding(target string) *Group {
	t := g.targets[target]
	if t == nil {
		return nil
	}
	byName := func(a, b *Group) int { return cmp.Compare(a.View().Group, b.View().Group) }
	for _, group := range slices.SortedFunc(slices.Values(t.groups), byName) {
		if group.rule.HoldRestarts && (g.held > 0 || group.View().withholds(target, maps.Keys(g.restarts.reserved))) {
			return group
		}
	}
	return nil
}

// setWithheld notes which group withholds the restart of a target, nil for none. It needs mu.
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

// markPresent is mark for a group that may have been removed. It needs mu.
func (g *Groups) markPresent(group *Group) {
	if g.byName[group.View().Group] == group {
		g.mark(group, false)
	}
}

// forgetRestart forgets that the restart of a target is reserved or withheld. It needs mu.
func (g *Groups) forgetRestart(target string) {
	delete(g.restarts.reserved, target)
	g.setWithheld(target, nil)
}

// endRestart forgets that the restart of a target is reserved if another instance takes requests. It needs mu.
func (g *Groups) endRestart(target, instance string, state State) {
	if reserved, ok := g.restarts.reserved[target]; ok && state.TakesRequests() && instance != reserved {
		delete(g.restarts.reserved, target)
	}
}
