package group

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// waitLimit is how long a group waits for undecided members.
const waitLimit = time.Minute

// wait tracks whether a group waits for its members to be decided, so that the first decided member does not get all
// requests. The group waits from when it first has members, and again when it has lost all members that took requests, for
// example when a reload renames or moves them.
//
// The wait is over when all members are decided, when as many take requests as were in rotation before, or after waitLimit,
// with the members that are decided by then.
type wait struct {
	over   bool
	began  time.Time // zero while no member exists
	enough int       // number of members in rotation before the wait; 0 if unknown
	absent int       // number of members that do not exist; the group does not wait for them

	joined int // number of members that have begun to take requests since the last View
	lost   int // number of members that took requests in the last View and are gone
}

// settle starts or finishes the wait for the members, and reports whether it did. A member that becomes down or draining is
// known, and does not make the group wait. It needs Groups.mu.
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

// release returns a member as it is when its group stops waiting. If the wait timed out, a member of unknown
// state is in rotation until it is known to be down, unless it has not even started. No member is newer than the
// others, so none starts slowly.
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
