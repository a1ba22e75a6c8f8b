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

// Floor withholds restarts so that enough targets of a group take requests, as *group.Groups does. Multiple goroutines
// call its methods.
type Floor interface {
	// Floors returns those groups of a target that withhold restarts.
	Floors(target string) []string

	// WithheldBy returns the group that withholds the restart of a target, or "". It does not count the targets that
	// Fleet.Reserved returns as taking requests, whatever the groups know.
	WithheldBy(target string) string
}

// Reserved returns the targets of a group whose restarts are reserved by engines of the fleet, as last read from the
// store. Such a member does not count for Config.Floor until another instance of it takes requests. Reserved does not
// block.
func (f *Fleet) Reserved(group string) []string { return f.floors.targets(group) }

// floors has the reservations of restarts in groups. Before a restart is recorded, the target's owner reserves it in
// each of the target's groups that withhold restarts. The transaction requires that the reservations of these groups
// have not changed since the restart was judged. So engines never make two restarts together of which the group could
// only bear one. Owners also end their reservations.
type floors struct {
	config  Config
	desired *desired
	mayAct  func(target string) bool
	sparse  *sparselog.Logger

	reserved *coord.Mirror[reservedGroup] // by group
}

// reservedGroup is the stored value of a group.
type reservedGroup struct {
	instances map[string]string // by target: the instance whose restart is reserved; read-only
	problem   error             // why the value cannot be read; then instances are those of the previous value
}

func newFloors(c Config, d *desired, mayAct func(target string) bool, sparse *sparselog.Logger) *floors {
	f := &floors{config: c, desired: d, mayAct: mayAct, sparse: sparse}
	f.reserved = coord.NewMirror(c.Coordinator, coord.Kind[reservedGroup]{
		Keys: coord.FloorKeys, Problem: "reservations of restarts cannot be followed, trying again", Parse: f.parse,
	})
	return f
}

// Bounds of reservations: the groups of a target, and the targets of a group, which share one value. All values of a
// target's groups are written in one request, which coord.MaxRequest bounds.
const (
	maxFloors   = 32
	maxReserved = 1024
)

// Bounds of the tries to reserve a restart. For every two tries that fail, another one has succeeded.
const (
	maxReserveTries = 20
	maxReservePause = 100 * time.Millisecond
)

// errContended is returned when other engines keep changing the reservations of a group.
var errContended = errors.New("other engines keep changing the restart reservations of its groups")

// put returns the condition that the reservations of a group are still those shown, and the change that replaces them.
func (f *floors) put(group string, shown coord.Item[reservedGroup], instances map[string]string) (coord.Condition, coord.Change) {
	value, _ := json.Marshal(instances) // cannot fail: JSON can encode all of it
	return f.reserved.Put(group, shown.Modified, value, 0)
}

// targets returns the targets that have a reservation in a group.
func (f *floors) targets(group string) []string {
	return slices.Collect(maps.Keys(f.reserved.Get(group).Value.instances))
}

// parse returns the stored value of a group. A value that cannot be read, such as one of a later release, may have
// reservations that the previous value lacks.
func (f *floors) parse(group string, e coord.Entry, before reservedGroup) (g reservedGroup) {
	if err := json.Unmarshal(e.Value, &g.instances); err != nil {
		g = reservedGroup{before.instances, fmt.Errorf("%w: update this engine, or delete the damaged entry %s below the prefix of the cluster", err, e.Key)}
		f.sparse.Warn("the reservations of a group cannot be read, restarts of its members are withheld", "group", group, "error", g.problem)
	}
	return g
}

// reserve reserves the restart of an instance in the groups of its target, if none of them withholds it and this engine
// still owns the target. If a group withholds it, the error is a restart.WithheldError.
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
		t, err := f.reservation(groups, target, instance) // must be read before WithheldBy checks the reservations
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

// reservation returns the transaction that reserves the restart of an instance in groups, on condition that their stored
// values have not changed.
func (f *floors) reservation(groups []string, target, instance string) (t coord.Transaction, err error) {
	size := 0
	for _, group := range groups {
		shown := f.reserved.Get(group)
		g := shown.Value
		if g.problem != nil {
			return t, fmt.Errorf("the reservations of group %s cannot be read: %w", group, g.problem)
		}
		if _, isReserved := g.instances[target]; !isReserved && len(g.instances) >= maxReserved {
			return t, fmt.Errorf("%d restarts are reserved in group %s, which is the limit: wait until one has ended", len(g.instances), group)
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

// commit commits a transaction, and reports whether its conditions were fulfilled.
func (f *floors) commit(ctx context.Context, t coord.Transaction) (made bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	each, err := f.config.Coordinator.Backend().Commit(ctx, t)
	return err == nil && each[0], err
}

// Times of reservations.
const (
	unreserveInterval = time.Second

	// settleTime applies to an instance whose restart was begun and is no longer under way, since it has failed or its
	// engine has exited: the instance counts again once it has taken requests for this long, since the result of the restart
	// is unknown.
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

// unreserveGroup ends the reservations of a group for those of this engine's targets that no longer need them. The
// transaction fails if a reservation was added meanwhile, even if the request arrives late. A target keeps its
// reservation while an act for it is under way.
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
		f.sparse.Warn("cannot remove reservations of restarts, retrying", "group", group, "error", err)
	}
}

// settling is the time since which an instance has taken requests while no act for its target was under way.
type settling struct {
	instance string // empty while it takes no requests
	since    time.Time
}

// settle returns the settling of a target now, given its previous one.
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

// isOver reports whether the reservation of a target's instance is no longer needed: another instance takes requests,
// this one has settled, or the fleet no longer has the target.
func (f *floors) isOver(s settling, target, instance string, now time.Time) bool {
	st, _ := f.config.Engine.Target(target)
	isSettled := s.instance == instance && now.Sub(s.since) >= settleTime
	return f.desired.isGone(target) || st.Gateway.TakesRequests() && (st.Instance.ID != instance || isSettled)
}
