package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
// its owner reserves it in each of the target's groups that withhold restarts, by a transaction that requires that the reservations
// of these have not changed since it was judged: of the restarts of all engines, no two are made that only one of would leave
// enough members.
type floors struct {
	config  Config
	desired *desired
	mayAct  func(target string) bool
	sparse  *sparselog.Logger

	reserved *coord.Mirror[reservedGroup] // by group
}

// reservedGroup is what the store has of a group.
type reservedGroup struct {
	instances map[string]string // whose restarts are reserved, by target; it is not changed
	problem   error             // why the value cannot be read; then instances are those of the value before
}

func newFloors(c Config, d *desired, mayAct func(target string) bool, sparse *sparselog.Logger) *floors {
	f := &floors{config: c, desired: d, mayAct: mayAct, sparse: sparse}
	f.reserved = coord.NewMirror(c.Coordinator, coord.Kind[reservedGroup]{
		Keys: coord.FloorKeys, Problem: "reservations of restarts cannot be followed, trying again", Parse: f.parse,
	})
	return f
}

// Bounds of what is reserved: the groups of a target, and the targets of a group, which are one value. The values of a
// target's groups are one request: coord.MaxRequest bounds them.
const (
	maxFloors   = 32
	maxReserved = 1024
)

// Bounds of the tries to reserve a restart. Of two that fail, another one has succeeded.
const (
	maxReserveTries = 20
	maxReservePause = 100 * time.Millisecond
)

// errContended says that others have changed the reservations of a group again and again.
var errContended = errors.New("other engines change the reservations of its groups")

// put returns the condition that the reservations of a group are those that the store has shown, and the change to others.
func (f *floors) put(group string, shown coord.Item[reservedGroup], instances map[string]string) (coord.Condition, coord.Change) {
	value, _ := json.Marshal(instances) // it has no part that JSON lacks
	return f.reserved.Put(group, shown.Modified, value, 0)
}

// targets returns the targets of a group that have reservations.
func (f *floors) targets(group string) []string {
	return slices.Collect(maps.Keys(f.reserved.Get(group).Value.instances))
}

// parse returns what the store has of a group. A value that cannot be read, such as that of a later release, may have other
// reservations than the value before.
func (f *floors) parse(group string, e coord.Entry, before reservedGroup) (g reservedGroup) {
	if err := json.Unmarshal(e.Value, &g.instances); err != nil {
		g = reservedGroup{before.instances, fmt.Errorf("%w: update this engine, or delete the damaged entry %s below the prefix of the cluster", err, e.Key)}
		f.sparse.Warn("the reservations of a group cannot be read, restarts of its members are withheld", "group", group, "error", g.problem)
	}
	return g
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
		t, err := f.reservation(groups, target, instance) // before WithheldBy asks what is reserved
		if err != nil {
			return err
		}
		t.If = append(t.If, owned)
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

// reservation returns the transaction that reserves the restart of an instance in groups, if the store still has what it has
// shown.
func (f *floors) reservation(groups []string, target, instance string) (t coord.Transaction, err error) {
	size := 0
	for _, group := range groups {
		shown := f.reserved.Get(group)
		g := shown.Value
		if g.problem != nil {
			return t, fmt.Errorf("the reservations of group %s cannot be read: %w", group, g.problem)
		}
		if _, isReserved := g.instances[target]; !isReserved && len(g.instances) >= maxReserved {
			return t, fmt.Errorf("%d restarts are reserved in group %s: wait until they have ended", len(g.instances), group)
		}
		instances := map[string]string{}
		maps.Copy(instances, g.instances)
		instances[target] = instance
		condition, change := f.put(group, shown, instances)
		t.If, t.Then = append(t.If, condition), append(t.Then, change)
		size += len(change.Value)
	}
	if size > coord.MaxRequest {
		return t, fmt.Errorf("the reservations in the groups of %s have %d bytes, at most %d are allowed: wait until other restarts have ended", target, size, coord.MaxRequest)
	}
	return t, nil
}

// commit makes a transaction, and reports whether its conditions were fulfilled.
func (f *floors) commit(ctx context.Context, t coord.Transaction) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	each, err := f.config.Coordinator.Backend().Commit(ctx, t)
	return err == nil && each[0], err
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
		reserved := f.reserved.All()
		before := settled
		settled = map[string]settling{}
		for group, g := range reserved {
			for target := range g.Value.instances {
				if _, isKnown := settled[target]; !isKnown && f.mayAct(target) {
					settled[target] = f.settle(before[target], target, time.Now())
				}
			}
			if g.Value.problem == nil {
				f.unreserveGroup(ctx, settled, group, g)
			}
		}
	}
}

// unreserveGroup ends those reservations of a group that are over, of targets of this engine. If one was made since then, all
// stay, also if the request is late. While an act is done about a target, its own stays.
func (f *floors) unreserveGroup(ctx context.Context, settled map[string]settling, group string, shown coord.Item[reservedGroup]) {
	owned, _ := f.config.Coordinator.Owned()
	var all []coord.Condition
	left := maps.Clone(shown.Value.instances)
	for target, s := range settled {
		instance, isReserved := shown.Value.instances[target]
		token := owned[shard.Of(target)].Token
		isOver := isReserved && token != 0 && f.isOver(s, target, instance, time.Now()) && !f.config.Coordinator.Acts().IsActing(target)
		if isOver && len(all) < coord.MaxTransactions {
			all = append(all, coord.Owns(shard.Of(target), token))
			delete(left, target)
		}
	}
	if len(all) == 0 {
		return
	}
	condition, change := f.put(group, shown, left)
	if _, err := f.commit(ctx, coord.Transaction{If: append(all, condition), Then: []coord.Change{change}}); err != nil && ctx.Err() == nil {
		f.sparse.Warn("reservations of restarts cannot be ended, trying again", "group", group, "error", err)
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
