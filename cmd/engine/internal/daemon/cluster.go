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

// Store is the backend that the engines of a cluster share.
type Store interface {
	coord.Backend
	Close() error
}

// OpenStore opens the store of a cluster block. If the store is unreachable, OpenStore waits a few seconds at most and returns
// no error.
type OpenStore func(config.Cluster) (Store, error)

// sharing manages the targets that an engine shares with others. It is a *cluster or alone.
type sharing interface {
	// divide separates the shared targets of a configuration from the engine's own. It returns an error for a change that a
	// reload cannot apply.
	divide(next *config.Config, n *desired) (*desired, error)

	// plan prepares the change to the shared targets without applying it.
	plan(n *desired) (sharedChange, error)

	isShared(target string) bool // whether the target is shared now
	mayOwn(target string) bool   // whether the target is shared and not known to belong to another engine
}

// sharedChange is a change to the shared targets.
type sharedChange struct {
	probes engine.Preview
	effect restart.Effect // on the targets of all engines, so that all engines accept the same configuration
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
	config      config.Cluster // at the time of opening
	store       Store
	coordinator *coord.Coordinator
	follower    *revision.Follower // of the pushed configuration; nil if the targets are in the engine's own files
	known       chan struct{}      // closed by setKnown once it is known whether this engine runs the current revision
	setKnown    func()
	fleet       *fleet.Fleet
	pauses      *pause.Keeper

	inUse atomic.Pointer[desired] // the configuration in use, without the shared probes: see fleet.Fleet.Probes
}

// openCluster opens the cluster of a configuration without joining it. It returns nil if there is no cluster block.
func (d *daemon) openCluster(c *config.Cluster) (*cluster, error) {
	if c == nil {
		if d.flags.clusterName != "" {
			return nil, errors.New("--cluster-name needs a cluster block in the configuration")
		}
		return nil, nil
	}
	name, err := ClusterName(d.flags.clusterName, *c)
	if err != nil {
		return nil, fmt.Errorf("%w: set --cluster-name, or name in the cluster block", err)
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

// ClusterName returns the name of an engine in its cluster: given, else the name in the cluster block, else the host name.
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

// makeFleet creates the fleet, which manages this engine's share of the targets. It completes the given configuration with the
// cluster's settings.
func (c *cluster) makeFleet(with fleet.Config, resume string) {
	with.Vantage.Logger = with.Logger.With("vantage", c.coordinator.Name())
	with.Coordinator, with.Zone, with.Resume = c.coordinator, c.config.Zone(), fleet.Resume(resume)
	c.fleet = fleet.New(with)
}

// markTold reports a change in the notices sent about a target or group: see fleet.NoticesChanged.
func (c *cluster) markTold(s notify.Subject) {
	if s.Kind == notify.KindGroup || c.isShared(s.Name) {
		c.fleet.NoticesChanged(s.Name)
	}
}

// run keeps the engine a member of the cluster until ctx is done. It then stores pending changes and leaves the cluster once
// the acts in progress have finished. The engine must run until run returns.
func (c *cluster) run(ctx context.Context) {
	member, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	var parts sync.WaitGroup
	if c.follower != nil {
		parts.Go(func() { c.follower.Run(ctx) })
	}
	parts.Go(func() { c.pauses.Share(ctx) })
	select { // no part must see a target without its pause
	case <-c.pauses.Synced():
	case <-ctx.Done():
	}
	parts.Go(func() { c.join(ctx, member) })
	c.fleet.Run(ctx)
	leave()
	parts.Wait()
	_ = c.store.Close() // all changes are stored
}

// join keeps the engine a member of the cluster until member is done. If targets are pushed, join first waits until it is known
// whether the engine runs the current revision, or until ctx is done.
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

// isShared reports whether the engines share a target.
func (c *cluster) isShared(target string) bool {
	return c.inUse.Load().isShared(target)
}

// isBrought reports whether a target's unit was added by the fleet, not by this engine's own configuration. The fleet removes
// the unit shortly after the target is no longer shared.
func (c *cluster) isBrought(target string) bool {
	_, isOwn := c.inUse.Load().units[target]
	return !isOwn
}

// mayNotify reports whether this engine may notify receivers about a target. For a shared target, fleet.MayNotify must report
// true and the target's pauses must be synced. It is safe for concurrent use.
func (c *cluster) mayNotify(target string) bool {
	return !c.isShared(target) || c.fleet.MayNotify(target) && c.pauses.IsSynced(target)
}

// isDoubted reports whether this engine doubts its own verdicts about a target or group. It is safe for concurrent use.
func (c *cluster) isDoubted(s notify.Subject) bool {
	return (s.Kind == notify.KindGroup || c.isShared(s.Name)) && !c.fleet.Doubt().MayAct
}

// mayRestart reports whether this engine may restart a target because a probe fails: see fleet.MayRestart. It is safe for
// concurrent use.
func (c *cluster) mayRestart(target string) bool {
	return !c.isShared(target) || c.fleet.MayRestart(target) && c.pauses.IsSynced(target)
}

// notifierOf returns which engine notifies receivers about a group: the owner of the shard of its name. It is safe for
// concurrent use.
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

// ownerOf returns the engine that owns a shared target. It returns "" if no engine owns it or the target is not shared.
func (c *cluster) ownerOf(target string) string {
	if !c.isShared(target) {
		return ""
	}
	return c.coordinator.OwnerOf(target)
}

// mayOwn reports whether a target is shared and not known to belong to another engine.
func (c *cluster) mayOwn(target string) bool {
	if !c.isShared(target) {
		return false
	}
	owner := c.coordinator.OwnerOf(target)
	return owner == "" || owner == c.coordinator.Name()
}

// divide implements sharing. A target is shared if it is defined in the configuration files, has probes, and its instances are
// not run by the engine.
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
			return nil, fmt.Errorf("target %q is no longer shared in the cluster: restart the engine to apply this change", target)
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

// effectOf returns the effect of a change on all shared targets.
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

// preview returns the changes to the shared probes, whichever engine runs them.
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

// addCounts adds the counts of other to those of to.
func addCounts(to *engine.Changes, other engine.Changes) {
	to.Added += other.Added
	to.Updated += other.Updated
	to.Replaced += other.Replaced
	to.Removed += other.Removed
	to.Kept += other.Kept
}

// status returns the state of the cluster for the API.
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
	if !known.Allowed { // the reports may be outdated
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

// healthOf returns the health of an engine according to its own last report.
func healthOf(engines map[string]fleet.Vantage, name string) api.MemberHealth {
	switch said, isKnown := engines[name]; {
	case !isKnown:
		return api.MemberUnknown
	case said.Doubtful:
		return api.MemberDoubtful
	}
	return api.MemberWell
}

// doubtOf returns for the API why an engine doubts its own verdicts.
func doubtOf(s doubt.State) api.Doubt {
	switch {
	case s.Alone:
		return api.DoubtAlone
	case s.Doubtful:
		return api.DoubtUnwell
	case !s.MayAct && s.SuspectAt.IsZero() && s != doubt.State{}:
		return api.DoubtRecovering
	}
	return api.DoubtNone // or the doubt has not begun, or the other engines have not reported their verdicts yet
}
