package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/restart"
)

// Floor withholds restarts so that enough targets of a group take requests, as *group.Groups does. Its methods are called
// by multiple goroutines.
type Floor interface {
	// Floors returns the groups that withhold restarts of which a target is a member.
	Floors(target string) []string

	// WithheldBy returns the group that withholds the restart of a target, or "". The targets that Fleet.Reserved returns
	// do not count as ones that take requests, whatever the groups know.
	WithheldBy(target string) string
}

// Reserved returns the targets of a group whose restarts engines of the fleet have reserved, as the store has shown them
// last: a member of it does not count for Config.Floor until another instance of it takes requests. It does not block.
func (f *Fleet) Reserved(group string) []string { return f.floors.targets(group) }

// floors are the restarts that engines have reserved in groups, and that their owners end. Before a restart is recorded,
// its owner reserves it in each of the target's groups that withhold restarts, by a transaction that requires that nothing was
// reserved in these since it was judged: of the restarts of all engines, no two are made that only one of would leave
// enough members.
type floors struct {
	config  Config
	desired *desired
	mayAct  func(target string) bool
	sparse  *sparselog.Logger

	reservedMu sync.Mutex                // guards reserved
	reserved   map[string]*reservedGroup // by group, as the store shows them
}

// reservedGroup is what the store has of a group.
type reservedGroup struct {
	generation coord.Revision    // of the latest change of its key, which each reservation makes
	instances  map[string]string // whose restarts are reserved, by target
}

// maxFloors bounds the groups in which a restart is reserved.
const maxFloors = 32

// Bounds of the tries to reserve a restart. Of two that fail, another one has succeeded.
const (
	maxReserveTries = 20
	maxReservePause = 100 * time.Millisecond
)

// errContended says that others have changed the reservations of a group again and again.
var errContended = errors.New("other engines change the reservations of its groups")

// floorKey returns a key of a group: its generation without a target, or else a reservation.
func floorKey(group, target string) string {
	key := coord.KeyFloor + url.PathEscape(group)
	if target == "" {
		return key + "/generation"
	}
	return key + "/target/" + target
}

// parseFloorKey returns the group and the target of which a key is the floorKey.
func parseFloorKey(key string) (group, target string, ok bool) {
	escaped, rest, _ := strings.Cut(strings.TrimPrefix(key, coord.KeyFloor), "/")
	group, err := url.PathUnescape(escaped)
	target = strings.TrimPrefix(rest, "target/")
	if rest == "generation" {
		target = ""
	}
	return group, target, err == nil && key == floorKey(group, target)
}

// targets returns the targets of a group that have reservations.
func (f *floors) targets(group string) (targets []string) {
	f.reservedMu.Lock()
	defer f.reservedMu.Unlock()
	if g := f.reserved[group]; g != nil {
		for target := range g.instances {
			targets = append(targets, target)
		}
	}
	return targets
}

// follow keeps the reservations up to date until ctx is done. While the store cannot be reached they stay as they were.
func (f *floors) follow(ctx context.Context) {
	c := f.config.Coordinator
	c.Follow(ctx, "reservations of restarts cannot be followed, trying again", func(ctx context.Context) error {
		return coord.FollowEntries(ctx, c.Backend(), coord.KeyFloor, f.changed)
	})
}

func (f *floors) changed(events []coord.Event, isAll bool) {
	f.reservedMu.Lock()
	defer f.reservedMu.Unlock()
	if isAll {
		f.reserved = map[string]*reservedGroup{}
	}
	for _, e := range events {
		name, target, ok := parseFloorKey(e.Key)
		if !ok {
			continue // no engine has put it
		}
		g := f.reserved[name]
		if g == nil {
			g = &reservedGroup{instances: map[string]string{}}
			f.reserved[name] = g
		}
		switch {
		case target != "" && e.Deleted:
			delete(g.instances, target)
		case target != "":
			g.instances[target] = string(e.Value)
		case e.Deleted:
			g.generation = 0
		default:
			g.generation = e.Modified
		}
	}
}

// generation is the condition that nothing was reserved in a group since the store has shown it.
func (f *floors) generation(group string) coord.Condition {
	f.reservedMu.Lock()
	defer f.reservedMu.Unlock()
	c := coord.Condition{Key: floorKey(group, "")}
	if g := f.reserved[group]; g != nil {
		c.Modified = g.generation
	}
	return c
}

// reserve reserves the restart of an instance in the groups of its target, if none of them withholds it and this engine still
// owns the target. The error is a restart.WithheldError if one does.
func (f *floors) reserve(ctx context.Context, target, instance string, owned coord.Condition) error {
	if f.config.Floor == nil {
		return nil
	}
	groups := f.config.Floor.Floors(target)
	switch {
	case len(groups) == 0:
		return nil
	case len(groups) > maxFloors:
		return fmt.Errorf("%s is in %d groups that withhold restarts, at most %d are allowed", target, len(groups), maxFloors)
	}
	for range maxReserveTries {
		t := coord.Transaction{If: []coord.Condition{owned}}
		for _, group := range groups { // before WithheldBy asks what is reserved
			t.If = append(t.If, f.generation(group))
			t.Then = append(t.Then, coord.Change{Key: floorKey(group, "")}, coord.Change{Key: floorKey(group, target), Value: []byte(instance)})
		}
		if group := f.config.Floor.WithheldBy(target); group != "" {
			return &restart.WithheldError{Group: group}
		}
		made, err := f.commit(ctx, t)
		switch {
		case err != nil:
			return fmt.Errorf("reserve the restart of %s: %w", target, err)
		case made:
			return nil
		case !f.config.Coordinator.Acts().MayBegin(target):
			return coord.ErrNotOwner
		}
		select {
		case <-time.After(rand.N(maxReservePause)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errContended
}

// commit makes transactions, and reports whether all were made.
func (f *floors) commit(ctx context.Context, all ...coord.Transaction) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	each, err := f.config.Coordinator.Backend().Commit(ctx, all...)
	return err == nil && !slices.Contains(each, false), err
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

// reservation is that of a target in a group, and the condition that nothing was reserved there since.
type reservation struct {
	group, instance string
	generation      coord.Condition
}

// byTarget returns the reservations of each target.
func (f *floors) byTarget() map[string][]reservation {
	f.reservedMu.Lock()
	defer f.reservedMu.Unlock()
	all := map[string][]reservation{}
	for group, g := range f.reserved {
		for target, instance := range g.instances {
			all[target] = append(all[target], reservation{group, instance, coord.Condition{Key: floorKey(group, ""), Modified: g.generation}})
		}
	}
	return all
}

// unreserveTarget ends those reservations of a target that are over. One that was made since then stays, also if the
// request is late. While an act is done about the target all stay.
func (f *floors) unreserveTarget(ctx context.Context, s settling, target string, reserved []reservation) {
	owned, _ := f.config.Coordinator.Owned()
	id := shard.Of(target)
	var all []coord.Transaction
	for _, r := range reserved[:min(len(reserved), coord.MaxTransactions)] {
		if f.isOver(s, target, r.instance, time.Now()) {
			all = append(all, coord.Transaction{
				If:   []coord.Condition{coord.Owns(id, owned[id].Token), r.generation},
				Then: []coord.Change{{Key: floorKey(r.group, target), Delete: true}},
			})
		}
	}
	if len(all) == 0 || owned[id].Token == 0 || f.config.Coordinator.Acts().IsActing(target) {
		return
	}
	if _, err := f.commit(ctx, all...); err != nil && ctx.Err() == nil {
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
