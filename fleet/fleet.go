// Package fleet gives an engine the targets of the shards that it owns in a fleet (package coord).
//
// Every engine of the fleet has the same targets. When an engine takes over a shard, it adds the shard's targets
// together with the memories that the previous owner stored of their probes, in one step, so that no verdict is decided
// again, and no restart is repeated or made too early. If no engine has seen the previous owner alive, Config.Resume
// applies; memories older than coord.Config.MaxAge are discarded. An engine releases a shard once the acts for it have
// finished and its memories are stored; until then it probes the shard's targets. Only coord.Acts.Do terminates
// instances.
//
// A probe with a quorum is attempted by several engines, its vantages, and each of them votes (package quorum). The
// owner's engine publishes the result of the votes, and only that result causes a restart.
//
// DESIGN.md lists the invariants that no single function shows.
//
//	fleet.go   Fleet: follows the shards that the Coordinator owns
//	desired.go the targets that Plan has set
//	hold.go    digests of the targets, and how those of other engines differ
//	change.go  a change of the engine and the controller when shards are taken over or their targets change
//	changes.go the targets whose memories are to be stored
//	store.go   the memories of a shard's targets, as this engine and the store have them
//	others.go  the targets of other engines, as their owners have stored them
//	depend.go  the targets of other engines as dependencies of this engine's targets
//	memory.go  the memories of targets, of their probes and restarts, as JSON
//	act.go     a driver that terminates instances by acts
//	notices.go the notices that receivers got about targets and groups, for the next owner
//	floor.go   withholds acts across engines so that enough members of groups take requests
//	quorum.go  the joint verdicts of probes with a quorum, published by their owner
//	votes.go   the votes of all engines as the store shows them, which of them count, and this engine's own votes
//	vantage.go the probes that this engine attempts in order to vote
//	opinion.go asks other engines about a target that does not respond to this one
//	doubt.go   whether this engine doubts its own verdicts
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// Config configures a Fleet.
type Config struct {
	Coordinator *coord.Coordinator  // required; runs as long as Fleet.Run
	Engine      *engine.Engine      // required; the fleet's probes are those of its owner "fleet"
	Restarts    *restart.Controller // required; also holds units that are not the fleet's, so other callers must use Change, not Apply; its Config.MayAct is Fleet.MayRestart for the targets of the fleet
	Resume      Resume              // what to do with stored memories if no engine has seen the last owner alive; default trust
	Vantage     engine.Config       // config of the engine that attempts probes with a quorum; only its votes are visible
	Zone        string              // the zone of this engine, for quorums: at most quorum.MaxZone bytes; default: none
	Notices     Notices             // required; the record of notices of targets and groups, which moves with the shards of their names
	Floor       Floor               // withholds restarts across engines, with Fleet.Reserved; default: none is withheld
	Logger      *slog.Logger        // logs when the store cannot be read or written, a restart is withheld, or this engine doubts its own verdicts; default: none
}

// Targets are the targets of a fleet. They must not be changed after they were passed to Plan.
type Targets struct {
	Probes probe.Set

	// Units has the units by target. Each driver is nil or a restart.External: this engine keeps the shard of a target until
	// its driver has exited, or reports that it could not terminate the instance. A unit with a driver needs a Revision:
	// without one, each Plan makes it a different unit.
	Units map[string]restart.Unit

	Groups []string // groups whose notices move with the shards of their names

	// Quorums has the quorum rules of those readiness and liveness probes of Probes whose verdict several engines decide
	// together. Zero fields of a rule have their defaults. The name of such a probe has at most probe.MaxProbeName-2 bytes.
	Quorums map[probe.ID]quorum.Rule

	// Dependencies has, by target, the targets that it depends on, as Others shows them: see engine.Change. The caller also
	// sets them in Config.Engine, which has the targets of Others as dependencies, too.
	Dependencies map[string][]string

	// Dampings has the damping of targets that flap, as Others shows them: see engine.Change. The caller also sets them in
	// Config.Engine, which resumes from the penalties that the previous owner stored.
	Dampings map[string]probe.Damping
}

// Fleet gives an engine the targets of its shards. Its methods are safe for concurrent use by multiple
// goroutines.
type Fleet struct {
	config   Config
	owner    *engine.Owner
	desired  *desired
	changes  *changes
	ledger   *ledger // Run's own
	votes    *votes
	vantage  *vantage
	doubts   *doubts
	opinions *opinions
	joints   *joints
	others   *others
	union    *engine.Union // of Config.Engine and others.engine
	floors   *floors
	wake     wake.Signal       // set when desired or changes have changed
	sparse   *sparselog.Logger // for warnings that may repeat in each pass
}

// Changes of verdicts are collected for collectDelay before they are stored. A shard is stored at most once per
// storeInterval, and a failed attempt to store is retried after storeInterval.
const (
	collectDelay  = 20 * time.Millisecond
	storeInterval = time.Second
)

// stepTimeout bounds each step of a pass over all shards while the store does not respond; endTimeout bounds the last
// pass.
const (
	stepTimeout = 10 * time.Second
	endTimeout  = 3 * time.Second
)

// reasonInterval is the time between two comparisons of the reasons of failures with the stored reasons.
const reasonInterval = 10 * time.Second

// New returns a Fleet without targets.
func New(c Config) *Fleet {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	changed := wake.New()
	f := &Fleet{
		config: c, owner: c.Engine.Owner("fleet"), desired: &desired{}, changes: newChanges(changed),
		votes: newVotes(c.Coordinator, c.Zone), others: newOthers(c.Coordinator, c.Logger, changed.Set),
		wake: changed, sparse: sparselog.New(c.Logger),
	}
	f.union = engine.NewUnion(c.Engine, f.others.engine)
	f.joints = &joints{config: c, votes: f.votes, desired: f.desired, changes: f.changes}
	f.votes.voted = f.joints.voted
	f.ledger = newLedger(c, f.joints, f.changes, f.sparse)
	f.floors = newFloors(c, f.desired, f.MayAct, f.sparse)
	f.vantage = newVantage(c, f.votes, f.instanceOf)
	f.doubts = &doubts{name: c.Coordinator.Name(), engines: []*engine.Engine{c.Engine, f.vantage.engine}, vantage: f.vantage, log: c.Logger}
	f.opinions = newOpinions(c, f.votes, f.desired)
	f.owner.SeekOpinions(f.opinions.ask)
	return f
}

// Plan prepares to replace the targets of the fleet, and changes nothing. Commit, which cannot fail, replaces all of
// them and returns immediately; Run does the work. Config.Engine must have validated the probes, dependencies and
// dampings. Plan returns an error for a target whose driver runs its instances on this host, since it does not belong to
// a fleet, and for a driver that cannot report its failures.
func (f *Fleet) Plan(t Targets) (commit func(), err error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	next := f.divide(f.joints.with(t))
	held, names := holdings(t, next)
	return func() {
		change := engine.Change{Dependencies: map[string][]string{}, Dampings: map[string]probe.Damping{}} // nil would keep the current ones
		maps.Copy(change.Dependencies, t.Dependencies)
		maps.Copy(change.Dampings, t.Dampings)
		if _, err := f.others.engine.Change(change); err != nil {
			f.config.Logger.Error("cannot set the dependencies and dampings of other engines' targets although they were validated: this is a bug", "error", err)
		}
		polled := probe.Set{}
		for id := range t.Quorums {
			polled[id] = t.Probes[id]
		}
		f.desired.polled.Store(&polled)
		f.desired.shards.Store(&next)
		f.config.Coordinator.SetHoldings(held, names)
		f.vantage.apply(t)
		f.wake.Set()
	}, nil
}

// Probes returns the probes of the last Plan that was committed. Any goroutine may call it.
func (f *Fleet) Probes() probe.Set {
	all := probe.Set{}
	for _, in := range f.desired.get() {
		maps.Copy(all, in.probes())
	}
	if polled := f.desired.polled.Load(); polled != nil {
		maps.Copy(all, *polled)
	}
	return all
}

// check returns an error for targets that Plan does not accept.
func (t Targets) check() error {
	for target, u := range t.Units {
		if err := checkDriver(u.Driver); err != nil {
			return fmt.Errorf("target %q: %w", target, err)
		}
	}
	return t.checkQuorums()
}

// divide returns the targets of each shard. It wraps their drivers so that only acts terminate instances.
func (f *Fleet) divide(t Targets) map[shard.ID]*Targets {
	all := map[shard.ID]*Targets{}
	in := func(target string) *Targets {
		id := shard.Of(target)
		if all[id] == nil {
			all[id] = &Targets{Probes: probe.Set{}, Units: map[string]restart.Unit{}}
		}
		return all[id]
	}
	for id, p := range t.Probes {
		p.Rule.Kind = id.Kind // memories are validated by it, also those of probes with a quorum
		in(id.Target).Probes[id] = p
	}
	for target, u := range t.Units {
		if external, ok := u.Driver.(restart.External); ok {
			u.Driver = &guarded{fleet: f, target: target, driver: external, failed: func(error) {}}
		}
		in(target).Units[target] = u
	}
	for _, group := range t.Groups {
		in(group).Groups = append(in(group).Groups, group)
	}
	return all
}

// Run follows the shards that the Coordinator owns until ctx is done. Then it stores the memories that have changed. It
// must be called once, and must return before the Coordinator is stopped.
func (f *Fleet) Run(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer end() // a panic must stop the parts, or else the engine would keep running without this loop
	parts.Go(func() { f.watch(ctx) })
	parts.Go(func() { f.watchTargets(ctx) })
	parts.Go(func() { f.vantage.run(ctx, f.doubts) })
	parts.Go(func() { f.doubts.run(ctx) })
	parts.Go(func() { f.opinions.run(ctx) })
	parts.Go(func() { f.others.run(ctx) })
	parts.Go(func() { f.floors.reserved.Run(ctx) })
	parts.Go(func() { f.floors.unreserve(ctx) })
	parts.Go(func() { f.followDependencies(ctx) })
	parts.Go(func() { f.others.engine.Admin().FollowDependencies(ctx, f.config.Engine, 0) })
	interrupted := f.config.Coordinator.Interruptions()
	reasons := time.NewTicker(reasonInterval)
	defer reasons.Stop()
	for {
		owned, changed := f.config.Coordinator.Owned()
		isDone := f.reconcile(ctx, owned)
		var again <-chan time.Time
		if !isDone {
			again = time.After(storeInterval)
		}
		select {
		case <-changed:
		case <-interrupted:
			interrupted = f.config.Coordinator.Interruptions()
			f.ledger.unverify()
		case <-f.wake:
		case <-again:
		case <-reasons.C:
			f.ledger.renewCauses()
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
			f.ledger.store(last, owned, nil, 0)
			return
		}
	}
}

// watch notes the targets whose probes have new verdicts or instances, until ctx is done.
func (f *Fleet) watch(ctx context.Context) {
	sub := f.config.Engine.Subscribe()
	defer sub.Close()
	for st, err := sub.Next(ctx); err == nil; st, err = sub.Next(ctx) {
		f.changes.note(st.ID.Target)
		f.doubts.probed(st.ID.Target, verdictOf(f.config.Engine, st.ID.Target, f.desired.decidesAlone))
	}
}

// watchTargets notes new instances of all targets, and targets of this engine whose state has changed, such as one that
// is ejected or damped, until ctx is done.
func (f *Fleet) watchTargets(ctx context.Context) {
	sub := f.union.SubscribeTargets()
	defer sub.Close()
	for st, err := sub.Next(ctx); err == nil; st, err = sub.Next(ctx) {
		if !f.union.IsOther(st.Target) {
			f.changes.note(st.Target)
		}
		f.vantage.noteInstance(st.Target)
	}
}

// instanceOf returns the instance of a target according to its owner, or "" if it is unknown.
func (f *Fleet) instanceOf(target string) string {
	st, _ := f.union.Target(target)
	return st.Instance.ID
}

// reconcile makes the engine probe the targets of owned shards. It returns false if it must be called again.
func (f *Fleet) reconcile(ctx context.Context, owned coord.Owned) (isDone bool) {
	isDone = true
	for _, step := range []func(context.Context, coord.Owned) bool{f.take, f.ledger.storeDue, f.ledger.release, f.ledger.sweep} {
		bounded, cancel := context.WithTimeout(ctx, stepTimeout)
		isDone = step(bounded, owned) && isDone
		cancel()
	}
	return isDone
}

// noTargets are the targets of a shard that has none.
var noTargets = &Targets{}

// take adds the targets of owned shards and removes those of other shards. Shards whose memories cannot be loaded wait,
// and so do shards that were lost before they were loaded. A shard that was lost for a time is loaded again. Since this
// engine may exit at any time, take stores the memories of one batch of shards before it loads the next.
func (f *Fleet) take(ctx context.Context, owned coord.Owned) (isDone bool) {
	desired := f.desired.get()
	if desired == nil {
		return true // before Plan is called; stored memories must not be deleted
	}
	var loading, ready []shard.ID
	for id, o := range owned {
		switch {
		case f.ledger.mustLoad(id, o):
			loading = append(loading, id)
		case f.ledger.stored[id] != nil && f.ledger.applied[id] != cmp.Or(desired[id], noTargets):
			ready = append(ready, id)
		}
	}
	for id := range f.ledger.applied {
		if _, ok := owned[id]; !ok {
			ready = append(ready, id)
		}
	}
	f.others.keep(desired, f.ledger.applied)
	slices.Sort(loading)
	isDone = f.replace(ready, owned, desired, nil)
	isStored := true
	for batch := range slices.Chunk(loading, coord.MaxTransactions) {
		loaded, err := f.config.Coordinator.Load(ctx, batch...)
		if err != nil {
			f.sparse.Warn("memories of shards cannot be loaded, trying again", "shards", len(loading), "error", err)
			return false
		}
		batch = stillOwned(f.config.Coordinator, batch, owned)
		isDone = f.replace(batch, owned, desired, loaded) && isDone
		if isStored && len(batch) > 0 {
			isStored = f.ledger.store(ctx, owned, batch, 0)
		}
	}
	return isDone && isStored
}

// replace replaces the targets of shards in the engine by the desired ones, or removes them if the shards are not owned.
// If the change of all shards fails, it tries each shard alone.
func (f *Fleet) replace(ids []shard.ID, owned coord.Owned, desired map[shard.ID]*Targets, loaded map[shard.ID]coord.Memories) (isDone bool) {
	c := newChange()
	for _, id := range ids {
		o, isOwned := owned[id]
		if !isOwned {
			f.others.add(id, desired[id])
			c.replace(id, f.ledger.applied[id], nil, memories{})
			continue
		}
		m := memories{}
		if l, isLoaded := loaded[id]; isLoaded {
			m = f.ledger.recall(id, o.Token, l)
			c.stored[id] = f.ledger.storedOf(id, o.Token, l, m)
		}
		c.replace(id, f.ledger.applied[id], cmp.Or(desired[id], noTargets), m)
	}
	err := f.change(c)
	if err == nil {
		return true
	}
	if len(ids) > 1 {
		isDone = true
		for i := range ids {
			isDone = f.replace(ids[i:i+1], owned, desired, loaded) && isDone
		}
		return isDone
	}
	f.sparse.Error("cannot change the targets of a shard, retrying", "shard", ids[0].String(), "error", err)
	return false
}

func (t *Targets) probes() probe.Set {
	if t == nil {
		return nil
	}
	return t.Probes
}

func (t *Targets) unit(target string) restart.Unit {
	if t == nil {
		return restart.Unit{}
	}
	return t.Units[target]
}
