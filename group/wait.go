package group

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// waitLimit is how long a group waits for members that are undecided.
const waitLimit = time.Minute

// wait says whether a group waits for its members to be decided, so that the first one that is
// does not get all requests. It waits from when it has members, and again when it has lost
// those that took requests, such as when a reload renames or moves all of them.
//
// It ends when all members are decided, when as many take requests as were in rotation before,
// or after waitLimit, with those that are decided then.
type wait struct {
	over   bool
	began  time.Time // zero without a member that exists
	enough int       // how many members were in rotation before; 0 if that is not known
	absent int       // members that do not exist, for which the group does not wait

	joined int // members that have begun to take requests since the last View
	lost   int // members that took requests in the last View, and are no longer there
}

// settle begins to wait for the members, or ends it, and reports whether it did. A member that
// has become down or draining is known, and nothing that others wait for. It needs Groups.mu.
func (g *Group) settle(now time.Time) (changed bool) {
	w, exist, serve := &g.wait, g.acting.Total()-g.wait.absent+g.zeroWeight, g.acting.Serving()
	if w.over && (exist == 0 || w.lost > 0 && serve == w.joined) {
		w.over, w.began, w.enough, changed = false, now, g.view.Load().InRotation, true
	}
	if exist == 0 {
		w.began = time.Time{}
	}
	if w.over || !g.isKnown() {
		return changed
	}
	isLate := now.Sub(w.began) >= waitLimit
	if isLate || g.acting[probe.GatewayUndecided] == w.absent || w.enough > 0 && serve >= w.enough {
		w.over, changed = true, true
		g.members.update(func(m *Member) *Member { return g.release(m, isLate) })
	}
	return changed
}

// release returns what a member is when its group no longer waits. If the group was late, a
// member of which nothing was found out is in rotation until it is known to be down, unless it
// has not even started. None is newer than the others, and starts slowly.
func (g *Group) release(m *Member, isLate bool) *Member {
	presume := isLate && m.acting == probe.GatewayUndecided && m.started && !m.ZeroWeight
	if !presume && m.slowSince.IsZero() {
		return m
	}
	c := *m
	if c.slowSince = (time.Time{}); presume {
		c.acting, c.serves = probe.GatewayReady, g.nextVersion()
	}
	g.uncount(m)
	g.count(&c)
	return &c
}
