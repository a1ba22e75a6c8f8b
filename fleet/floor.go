package fleet

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/internal/sparselog"
)

// Floor withholds acts so that enough targets of a group take requests, as *group.Groups does. Its methods are called by
// multiple goroutines.
type Floor interface {
	// Floors returns the groups that withhold restarts of which a target is a member.
	Floors(target string) []string

	// WithheldBy returns the group that withholds the restart of a target, or "". Reserved has the targets of groups
	// whose restarts are reserved by any engine: they do not count as ones that take requests, whatever the groups know.
	WithheldBy(target string, reserved map[string][]string) string
}

// Reserved returns the targets of a group whose restarts engines of the fleet have reserved, as the store has shown them
// last: a member of it does not count for Config.Floor until another instance of it takes requests. It does not block.
func (f *Fleet) Reserved(group string) []string {
	return f.floors.targets(group)
}

// floors are the reservations of acts, which their owners end.
type floors struct {
	config  Config
	desired *desired
	mayAct  func(target string) bool
	sparse  *sparselog.Logger

	reservedMu sync.Mutex                   // guards reserved
	reserved   map[string]map[string]string // instances by target, by group, as the store shows them
}

// of returns what may withhold the acts of a target.
func (f *floors) of(target string) coord.Floor {
	if f.config.Floor == nil {
		return coord.Floor{}
	}
	return coord.Floor{
		Groups:     f.config.Floor.Floors(target),
		WithheldBy: func(reserved map[string][]string) string { return f.config.Floor.WithheldBy(target, reserved) },
	}
}

// targets returns the targets of a group that have reservations.
func (f *floors) targets(group string) (targets []string) {
	f.reservedMu.Lock()
	defer f.reservedMu.Unlock()
	for target := range f.reserved[group] {
		targets = append(targets, target)
	}
	return targets
}

// follow keeps the reservations up to date until ctx is done. While the store cannot be reached they stay as they were.
func (f *floors) follow(ctx context.Context) {
	c := f.config.Coordinator
	c.Follow(ctx, "reservations of restarts cannot be followed, trying again", func(ctx context.Context) error {
		return coord.FollowEntries(ctx, c.Backend(), coord.ReservationPrefix, f.changed)
	})
}

func (f *floors) changed(events []coord.Event, isAll bool) {
	f.reservedMu.Lock()
	defer f.reservedMu.Unlock()
	if isAll {
		f.reserved = map[string]map[string]string{}
	}
	for _, e := range events {
		r, ok := coord.ReservationOf(e.Entry)
		switch {
		case !ok:
		case e.Deleted:
			if delete(f.reserved[r.Group], r.Target); len(f.reserved[r.Group]) == 0 {
				delete(f.reserved, r.Group)
			}
		case f.reserved[r.Group] == nil:
			f.reserved[r.Group] = map[string]string{r.Target: r.Instance}
		default:
			f.reserved[r.Group][r.Target] = r.Instance
		}
	}
}

// byTarget returns the reservations of each target.
func (f *floors) byTarget() map[string][]coord.Reservation {
	f.reservedMu.Lock()
	defer f.reservedMu.Unlock()
	all := map[string][]coord.Reservation{}
	for group, targets := range f.reserved {
		for target, instance := range targets {
			all[target] = append(all[target], coord.Reservation{Group: group, Target: target, Instance: instance})
		}
	}
	return all
}

// Times of reservations.
const (
	unreserveInterval = time.Second

	// settleTime is how long an instance must have taken requests whose restart was begun and is not under way any
	// more, since it has failed or its engine has ended, until it counts again: what has become of it must be found out.
	settleTime = time.Minute
)

// unreserve ends the reservations of this engine's targets until ctx is done.
func (f *floors) unreserve(ctx context.Context) {
	ticks := time.NewTicker(unreserveInterval)
	defer ticks.Stop()
	settled := map[string]settling{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		reserved := f.byTarget()
		maps.DeleteFunc(settled, func(target string, _ settling) bool { return reserved[target] == nil || !f.mayAct(target) })
		for target, all := range reserved {
			if f.mayAct(target) {
				settled[target] = f.settle(settled[target], target, time.Now())
				f.unreserveTarget(ctx, settled[target], target, all)
			}
		}
	}
}

// unreserveTarget ends those reservations of a target that are over.
func (f *floors) unreserveTarget(ctx context.Context, s settling, target string, all []coord.Reservation) {
	isOver := func(instance string) bool { return f.isOver(s, target, instance, time.Now()) }
	var groups []string
	for _, r := range all {
		if isOver(r.Instance) {
			groups = append(groups, r.Group)
		}
	}
	if len(groups) == 0 {
		return
	}
	err := f.config.Coordinator.Acts().Unreserve(ctx, target, groups, isOver)
	if err != nil && !errors.Is(err, coord.ErrBusy) && !errors.Is(err, coord.ErrNotOwner) && ctx.Err() == nil {
		f.sparse.Warn("reservation of a restart cannot be deleted, trying again", "target", target, "error", err)
	}
}

// settling is since when an instance has taken requests while no act was done about its target.
type settling struct {
	instance string // empty while it does not
	since    time.Time
}

// settle returns what a target's settling is now, after what it was before.
func (f *floors) settle(before settling, target string, now time.Time) settling {
	st, _ := f.config.Engine.Target(target)
	switch {
	case !st.Gateway.TakesRequests() || f.config.Coordinator.Acts().IsActing(target):
		return settling{}
	case before.instance == st.Instance.ID:
		return before
	}
	return settling{st.Instance.ID, now}
}

// isOver reports whether the reservation of a target's instance has served its purpose: another instance takes requests,
// or this one has settled, or the fleet has no such target any more.
func (f *floors) isOver(s settling, target, instance string, now time.Time) bool {
	st, _ := f.config.Engine.Target(target)
	isSettled := s.instance == instance && now.Sub(s.since) >= settleTime
	return f.desired.isGone(target) || st.Gateway.TakesRequests() && (st.Instance.ID != instance || isSettled)
}
