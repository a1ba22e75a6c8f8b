package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/doubt"
	"github.com/sonde-probe/sonde/fleet/revision"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// Store is what the engines of a cluster share.
type Store interface {
	coord.Backend
	Close() error
}

// OpenStore opens the store that a cluster block names. While that is away it waits some seconds at most, and has no error.
type OpenStore func(config.Cluster) (Store, error)

// sharing is what becomes of the targets that an engine shares with others: a *cluster, or alone.
type sharing interface {
	// divide sets which targets a configuration shares, or returns an error about what a reload cannot change.
	divide(next *config.Config, n *desired) (*desired, error)

	// plan prepares the change of those targets, and changes nothing.
	plan(n *desired) (sharedChange, error)

	isShared(target string) bool // is it one of them now
	mayOwn(target string) bool   // is it one of them, and not known to be another engine's
}

// sharedChange is a change of targets that engines share.
type sharedChange struct {
	probes engine.Preview
	effect restart.Effect // on the targets of all engines, so that all accept the same configuration
	commit func()
}

// alone is the sharing of an engine without a cluster.
type alone struct{}

func (alone) divide(next *config.Config, n *desired) (*desired, error) {
	if next.Cluster != nil {
		return nil, errors.New("a cluster block was added: restart the engine to apply that")
	}
	return n, nil
}

func (alone) plan(*desired) (sharedChange, error) { return sharedChange{commit: func() {}}, nil }
func (alone) isShared(string) bool                { return false }
func (alone) mayOwn(string) bool                  { return false }

// cluster is the membership of the engine in a cluster.
type cluster struct {
	config      config.Cluster // that it was opened with
	store       Store
	coordinator *coord.Coordinator
	follower    *revision.Follower // of the configuration that is pushed; nil if the targets are in the files of the engine
	known       chan struct{}      // closed by setKnown: it is known whether this engine runs the current revision
	setKnown    func()
	fleet       *fleet.Fleet
	pauses      *pause.Keeper

	inUse atomic.Pointer[desired] // what the configuration in use asks for, without the shared probes: see fleet.Fleet.Probes
}

// openCluster returns the cluster of a configuration, which it does not join yet, or nil for none.
func (d *daemon) openCluster(c *config.Cluster) (*cluster, error) {
	if c == nil {
		if d.flags.clusterName != "" {
			return nil, errors.New("--cluster-name needs a cluster block in the configuration")
		}
		return nil, nil
	}
	name, err := ClusterName(d.flags.clusterName, *c)
	if err != nil {
		return nil, fmt.Errorf("%w: write --cluster-name, or name in the cluster block", err)
	}
	if problem := config.ClusterNameProblem(name); problem != "" {
		return nil, fmt.Errorf("the name of this engine in the cluster %s: write another --cluster-name", problem)
	}
	backend, err := d.openStore(*c)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	coordinator, err := coord.New(coord.Config{Name: name, Backend: backend, TTL: c.TTL, MaxAge: maxStateAge(d.settings), Logger: d.log})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cluster: %w", err), backend.Close())
	}
	known := make(chan struct{})
	opened := &cluster{config: *c, store: backend, coordinator: coordinator, known: known, setKnown: sync.OnceFunc(func() { close(known) })}
	d.openFollower(opened)
	opened.inUse.Store(&desired{})
	return opened, nil
}

// ClusterName returns the name of an engine in its cluster: what was given, or that of the cluster block, or else the name
// of this host.
func ClusterName(given string, c config.Cluster) (string, error) {
	if name := cmp.Or(given, c.Name); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the host name is not known (%w)", err)
	}
	return name, nil
}

// makeFleet makes what gives the engine its share of the targets. Of the configuration it sets what is about the cluster.
func (c *cluster) makeFleet(with fleet.Config, resume string) {
	with.Vantage.Logger = with.Logger.With("vantage", c.coordinator.Name())
	with.Coordinator, with.Zone, with.Resume = c.coordinator, c.config.Zone(), fleet.Resume(resume)
	c.fleet = fleet.New(with)
}

// markTold says that receivers know something else of a target or a group: see fleet.NoticesChanged.
func (c *cluster) markTold(s notify.Subject) {
	if s.Kind == notify.KindGroup || c.isShared(s.Name) {
		c.fleet.NoticesChanged(s.Name)
	}
}

// run is a member of the cluster until ctx is done. Then it stores what has changed, and leaves when the acts that
// are being done have ended. The engine must run until it returns.
func (c *cluster) run(ctx context.Context) {
	member, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	var parts sync.WaitGroup
	if c.follower != nil {
		parts.Go(func() { c.follower.Run(ctx) })
	}
	parts.Go(func() { c.pauses.Share(ctx) })
	select { // no one sees a target without its pause
	case <-c.pauses.Synced():
	case <-ctx.Done():
	}
	parts.Go(func() { c.join(ctx, member) })
	c.fleet.Run(ctx)
	leave()
	parts.Wait()
	_ = c.store.Close() // there is nothing left to be lost
}

// join is a member of the cluster until member is done. If targets are pushed, it joins when it is known whether those
// that it has are the current ones: ctx may be done before.
func (c *cluster) join(ctx, member context.Context) {
	if c.follower != nil {
		select {
		case <-c.known:
		case <-ctx.Done():
			return
		}
	}
	c.coordinator.Run(member)
}

// isShared reports whether a target is one of those that the engines share.
func (c *cluster) isShared(target string) bool {
	return c.inUse.Load().isShared(target)
}

// isBrought reports whether a unit is none of this engine alone: the fleet has brought it, and removes it a moment after the
// target is no longer shared.
func (c *cluster) isBrought(target string) bool {
	_, isOwn := c.inUse.Load().units[target]
	return !isOwn
}

// mayNotify reports whether this engine may notify receivers about a target. About a shared one it may while fleet.MayNotify reports
// true and the pauses of the target are known. Any goroutine may call it.
func (c *cluster) mayNotify(target string) bool {
	return !c.isShared(target) || c.fleet.MayNotify(target) && c.pauses.IsSynced(target)
}

// isDoubted reports whether this engine doubts its own verdicts about a target or group. Any goroutine may call it.
func (c *cluster) isDoubted(s notify.Subject) bool {
	return (s.Kind == notify.KindGroup || c.isShared(s.Name)) && !c.fleet.Doubt().MayAct
}

// mayRestart reports whether this engine may restart a target because a probe fails: see fleet.MayRestart. Any
// goroutine may call it.
func (c *cluster) mayRestart(target string) bool {
	return !c.isShared(target) || c.fleet.MayRestart(target) && c.pauses.IsSynced(target)
}

// notifierOf returns which engine notifies receivers about a group: the one that owns the shard of its name. Any goroutine may call it.
func (c *cluster) notifierOf(group string) notify.Notifier {
	if c.fleet.MayNotify(group) {
		return notify.ThisEngine
	}
	switch c.coordinator.OwnerOf(group) {
	case "", c.coordinator.Name():
		return notify.NoEngine
	}
	return notify.OtherEngine
}

// ownerOf returns the engine that owns a target that is shared; "" while none does, and for any other target.
func (c *cluster) ownerOf(target string) string {
	if !c.isShared(target) {
		return ""
	}
	return c.coordinator.OwnerOf(target)
}

// mayOwn reports whether a target is one that is shared, and no other engine is known to own it.
func (c *cluster) mayOwn(target string) bool {
	if !c.isShared(target) {
		return false
	}
	owner := c.coordinator.OwnerOf(target)
	return owner == "" || owner == c.coordinator.Name()
}

// divide implements sharing: shared are the targets of the configuration's files that have probes, and whose instances the
// engine does not run.
func (c *cluster) divide(next *config.Config, n *desired) (*desired, error) {
	switch {
	case next.Cluster == nil:
		return nil, errors.New("the cluster block was removed: restart the engine to apply that")
	case !reflect.DeepEqual(c.config, *next.Cluster):
		return nil, errors.New("the cluster block was changed: restart the engine to apply that")
	}
	own := &desired{config: n.config, set: probe.Set{}, units: map[string]restart.Unit{}}
	own.shared = fleet.Targets{
		Probes: probe.Set{}, Units: map[string]restart.Unit{}, Groups: slices.Sorted(maps.Keys(next.Groups)),
		Quorums: next.Quorums, Dependencies: dependencies(next), Dampings: dampings(next),
	}
	for id, p := range n.set {
		if _, ofFiles := next.Targets[id.Target]; ofFiles && !runs(n.units[id.Target].Driver) {
			own.shared.Probes[id] = p
			own.shared.Units[id.Target] = n.units[id.Target]
		} else {
			own.set[id] = p
		}
	}
	before := c.inUse.Load()
	for target, u := range n.units {
		if _, shared := own.shared.Units[target]; shared {
			continue
		}
		if before.isShared(target) {
			return nil, fmt.Errorf("target %q was shared in the cluster, and is now for this engine alone: restart the engine to apply that", target)
		}
		own.units[target] = u
	}
	return own, nil
}

// plan implements sharing.
func (c *cluster) plan(n *desired) (planned sharedChange, err error) {
	if planned.probes, err = c.preview(n); err != nil {
		return sharedChange{}, err
	}
	commit, err := c.fleet.Plan(n.shared)
	if err != nil {
		return sharedChange{}, err
	}
	planned.effect = c.effectOf(n)
	planned.commit = func() {
		inUse := *n
		inUse.shared.Probes = nil // the fleet has them
		c.inUse.Store(&inUse)
		commit()
	}
	return planned, nil
}

// effectOf returns what becomes of all targets that are shared.
func (c *cluster) effectOf(n *desired) (e restart.Effect) {
	before := c.inUse.Load().shared.Units
	e.Units = len(before)
	for target := range before {
		if _, kept := n.shared.Units[target]; !kept {
			e.Removed = append(e.Removed, target)
		}
	}
	for target := range n.shared.Units {
		if _, was := before[target]; !was {
			e.Added = append(e.Added, target)
		}
	}
	return e
}

// preview returns what becomes of the probes that are shared, whichever engine has them.
func (c *cluster) preview(n *desired) (engine.Preview, error) {
	scratch := engine.New(engine.Config{}) // never runs
	if _, err := scratch.Apply(c.fleet.Probes()); err != nil {
		return engine.Preview{}, err
	}
	p, err := scratch.Plan(engine.Change{Set: n.shared.Probes, All: true})
	if err != nil {
		return engine.Preview{}, err
	}
	defer p.Discard()
	return p.Preview(), nil
}

// addCounts adds the counts of other changes.
func addCounts(to *engine.Changes, other engine.Changes) {
	to.Added += other.Added
	to.Updated += other.Updated
	to.Replaced += other.Replaced
	to.Removed += other.Removed
	to.Kept += other.Kept
}

// status returns what is known of the cluster, for the API.
func (c *cluster) status() api.Cluster {
	st := c.coordinator.Status()
	shared := c.inUse.Load().shared.Units
	votes := c.fleet.Quorum()
	known := api.Cluster{
		Name: st.Name, Member: st.IsMember, Refused: st.Refusal, Allowed: st.Left > 0, LeaseSeconds: st.Left.Seconds(), Heard: c.fleet.Heard().UTC(),
		Zone: c.config.Zone(), Polls: votes.Polls, Gray: votes.Gray, Doubt: doubtOf(c.fleet.Doubt()),
		Shards: st.Shards, ShardCount: shard.Count, Targets: len(shared), Members: make([]api.ClusterMember, 0, len(st.Members)),
	}
	owned, _ := c.coordinator.Owned()
	owns := map[string]int{}
	for target := range shared {
		if _, ok := owned[shard.Of(target)]; ok {
			known.Owned++
		}
		owns[c.coordinator.OwnerOf(target)]++
	}
	engines, differences := c.fleet.Engines(), c.fleet.Differences()
	if !known.Allowed { // they may be anything by now
		maps.DeleteFunc(engines, func(name string, _ fleet.Vantage) bool { return name != st.Name })
	}
	for _, m := range st.Members {
		known.Members = append(known.Members, api.ClusterMember{
			Name: m.Name, Shards: m.Shards, Targets: owns[m.Name], Drained: m.Drained, Health: healthOf(engines, m.Name),
		})
		if d, differs := differences[m.Name]; differs {
			known.Members[len(known.Members)-1].Differs = (*api.ClusterDifference)(&d)
		}
	}
	for _, drain := range st.Drains {
		known.Drains = append(known.Drains, api.ClusterDrain{Name: drain.Name, By: drain.By, At: drain.At})
	}
	c.addRevisions(&known)
	return known
}

// healthOf returns how an engine is, by what it has said of itself.
func healthOf(engines map[string]fleet.Vantage, name string) api.MemberHealth {
	switch said, isKnown := engines[name]; {
	case !isKnown:
		return api.MemberUnknown
	case said.Doubtful:
		return api.MemberDoubtful
	}
	return api.MemberWell
}

// doubtOf returns why an engine doubts its own verdicts, for the API.
func doubtOf(s doubt.State) api.Doubt {
	switch {
	case s.Alone:
		return api.DoubtAlone
	case s.Doubtful:
		return api.DoubtUnwell
	case !s.MayAct && s.SuspectAt.IsZero() && s != doubt.State{}:
		return api.DoubtRecovering
	}
	return api.DoubtNone // or it has not begun, or others have not said yet what they see
}
