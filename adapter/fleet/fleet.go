// Package fleet gives an engine the targets of the shards that it owns in a fleet (package coord).
//
// Every engine of the fleet is given the same targets. A shard that is taken over comes with what the
// owner before has stored of its probes: both are added to the engine in one step, so that no verdict is
// decided anew, and no restart is made twice or too early. If no engine has seen that owner alive, Config.Resume
// applies; and nothing goes on that is older than coord.Config.MaxAge. A shard is given up after the acts that are being
// done for it, and after its memories were stored; until then it is probed. Instances are terminated by
// coord.Coordinator.Act only.
//
// A probe with a quorum is attempted by several engines, its vantages, and each votes (packages quorum and vote).
// The engine of the owner publishes what their votes add up to, and restarts because of that only.
//
//	fleet.go   Fleet: follows what the Coordinator owns
//	others.go  the targets of other engines, as these have stored them
//	memory.go  the memories of targets, of their probes and restarts, as bytes
//	act.go     a driver that terminates instances by acts
//	quorum.go  the joint verdicts of probes with a quorum, as their owner publishes them
//	vantage.go the votes of this engine
//	doubt.go   whether this engine doubts its own verdicts
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/coord/quorum"
	"github.com/sonde-probe/sonde/coord/shard"
	"github.com/sonde-probe/sonde/coord/vote"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Fleet.
type Config struct {
	Coordinator *coord.Coordinator  // required; runs as long as Fleet.Run
	Engine      *engine.Engine      // required; the fleet's probes are those of its owner "fleet"
	Restarts    *restart.Controller // required; has the units of owned shards besides those of others, so that others use its Change and not its Apply; its Config.MayAct is Fleet.MayRestart, for the targets of the fleet
	Resume      Resume              // with what is stored if no engine has seen the last owner alive; default Trust
	Vantage     engine.Config       // of the engine that attempts probes with a quorum, of which only the votes are seen
	Zone        string              // where this engine is, for quorums: at most vote.MaxZone bytes; default: none
	Logger      *slog.Logger        // a line when the store cannot be read or written, when a restart is withheld, and when this engine doubts its own verdicts; default: none
}

// Targets are the targets of a fleet. They must not be changed after they were passed to Apply. A driver that may
// fail to terminate an instance must be a restart.Reporting: this engine keeps the shard of a target until its driver
// has exited or failed.
type Targets struct {
	Probes probe.Set
	Units  map[string]restart.Unit // by target; each driver is nil or a restart.External

	// Quorums has the readiness and liveness probes whose verdict several engines decide together, by which rule.
	// Zero fields of a rule have their defaults. The name of such a probe has at most probe.MaxProbeName-2 bytes.
	Quorums map[probe.ID]quorum.Rule

	// Dependencies are which targets depend on which others, as Others shows them: see engine.Engine.SetDependencies.
	// The caller sets those of Config.Engine, which has the targets of Others as dependencies, too.
	Dependencies map[string][]string
}

// Fleet gives an engine the targets of its shards. Its methods are safe for concurrent use by multiple
// goroutines.
type Fleet struct {
	config  Config
	owner   *engine.Owner
	voter   *vote.Voter
	counter *vote.Counter
	vantage *vantage
	doubts  *doubts
	joints  joints
	others  *others
	wake    chan struct{} // capacity 1: desired or changed were changed

	ballotsMu sync.Mutex // held while the counter is told of instances: of two calls the later one knows the later instance

	desiredMu    sync.Mutex // guards all below
	desired      map[shard.ID]*Targets
	isDesired    bool                        // desired was set
	changed      map[shard.ID]names          // whose memories are to be stored
	isCollecting bool                        // wake is sent to after collectDelay
	loaded       map[shard.ID]coord.Revision // the tokens with which the memories of applied shards were loaded

	applied    map[shard.ID]*Targets // in the engine; this and all below are Run's own
	stored     map[shard.ID]*stored  // of applied
	unswept    map[shard.ID]bool     // may have records of acts for targets, or joint verdicts of probes, that are gone
	incomplete map[string]bool       // targets a part of whose memory is not stored, which was logged
	seed       maphash.Seed
}

// names are targets of a shard; nil: all of them, and those that are gone.
type names map[string]bool

func (n names) has(target string) bool { return n == nil || n[target] }

// stored is what is known about the memories of a shard in the store.
type stored struct {
	token    coord.Revision // with which they were loaded: under another one, another engine may have stored others
	isMarked bool           // as loaded with that token, since what this engine has made of them is stored
	sums     map[string]sums
	at       time.Time // when this engine has stored some last

	causes map[probe.ID]cause // as they were loaded, or are to be stored
}

// sums are the hashes of the memories of a target of which the store has one, unless another engine has stored one
// meanwhile: several if it is not known whether the latest was stored. That of no memory is 0.
type sums []uint64

// isStored reports whether the store has the memory with a hash.
func (s sums) isStored(sum uint64) bool { return len(s) == 1 && s[0] == sum || len(s) == 0 && sum == 0 }

// tried returns s after it has failed to store a memory with a hash: it may have been stored all the same.
func (s sums) tried(sum uint64) sums {
	if len(s) == 0 {
		s = sums{0}
	}
	if slices.Contains(s, sum) {
		return s
	}
	return append(s, sum)
}

// Changes of verdicts are collected for collectDelay before they are stored, and those of one shard for
// storeInterval after it was stored. What failed is tried again after storeInterval.
const (
	collectDelay  = 20 * time.Millisecond
	storeInterval = time.Second
)

// patience bounds each step of a pass over all shards, while the store does not answer, and endTimeout the last pass.
const (
	patience   = 10 * time.Second
	endTimeout = 3 * time.Second
)

// New returns a Fleet without targets.
func New(c Config) (*Fleet, error) {
	if c.Coordinator == nil || c.Engine == nil || c.Restarts == nil {
		return nil, errors.New("fleet: Config.Coordinator, Config.Engine and Config.Restarts are required")
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	wake := make(chan struct{}, 1)
	f := &Fleet{
		config: c, owner: c.Engine.Owner("fleet"), joints: joints{all: map[probe.ID]vote.Joint{}}, wake: wake,
		others:  newOthers(c.Coordinator, c.Logger, func() { notify(wake) }),
		changed: map[shard.ID]names{}, loaded: map[shard.ID]coord.Revision{}, applied: map[shard.ID]*Targets{}, stored: map[shard.ID]*stored{},
		unswept: map[shard.ID]bool{}, incomplete: map[string]bool{}, seed: maphash.MakeSeed(),
	}
	var err error
	if f.voter, err = vote.NewVoter(vote.VoterConfig{Coordinator: c.Coordinator, Zone: c.Zone, Logger: c.Logger}); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	f.counter, err = vote.NewCounter(vote.CounterConfig{Coordinator: c.Coordinator, Voter: f.voter, Decided: f.decided, Logger: c.Logger})
	f.vantage = newVantage(c, f.voter)
	f.doubts = &doubts{name: c.Coordinator.Name(), engines: []*engine.Engine{c.Engine, f.vantage.engine}, voter: f.voter, log: c.Logger}
	return f, err
}

// Apply replaces the targets of the fleet: all, or none if it returns an error. It returns at once; Run
// does the work. A target whose driver runs its instances on this host is an error: it is not one of a
// fleet.
func (f *Fleet) Apply(t Targets) error {
	if err := restart.CheckUnits(t.Units); err != nil {
		return err
	}
	for target, u := range t.Units {
		if _, isExternal := u.Driver.(restart.External); u.Driver != nil && !isExternal {
			return fmt.Errorf("target %q: its instances run on the host of one engine; apply it to that engine, not to the fleet", target)
		}
	}
	for id, p := range t.Probes {
		if err := errors.Join(id.Check(), p.Rule.WithDefaults().Check()); err != nil {
			return fmt.Errorf("probe %q: %w", id, err)
		}
	}
	if err := t.checkQuorums(); err != nil {
		return err
	}
	if err := f.others.engine.SetDependencies(t.Dependencies); err != nil {
		return err
	}
	if err := f.count(t); err != nil { // first: joint verdicts without a ballot are swept
		return err
	}
	f.desiredMu.Lock()
	before := f.desired
	f.desiredMu.Unlock()
	desired := f.divide(f.withQuorums(t), before)
	f.desiredMu.Lock()
	f.desired, f.isDesired = desired, true
	f.desiredMu.Unlock()
	f.vantage.apply(t)
	notify(f.wake)
	return nil
}

// desiredProbe returns a probe of the fleet, the zero one for any other. It needs desiredMu.
func (f *Fleet) desiredProbe(id probe.ID) probe.Probe {
	if in := f.desired[shard.Of(id.Target)]; in != nil {
		return in.Probes[id]
	}
	return probe.Probe{}
}

// divide returns the targets of each shard, whose instances are terminated by acts only.
func (f *Fleet) divide(t Targets, before map[shard.ID]*Targets) map[shard.ID]*Targets {
	all := map[shard.ID]*Targets{}
	in := func(target string) *Targets {
		id := shard.Of(target)
		if all[id] == nil {
			all[id] = &Targets{Probes: probe.Set{}, Units: map[string]restart.Unit{}}
		}
		return all[id]
	}
	for id, p := range t.Probes {
		in(id.Target).Probes[id] = p
	}
	for target, u := range t.Units {
		if external, ok := u.Driver.(restart.External); ok {
			u.Driver = f.guard(before[shard.Of(target)].unit(target).Driver, target, external)
		}
		in(target).Units[target] = u
	}
	return all
}

// Run follows what the Coordinator owns until ctx is done. Then it stores what has changed. Call it once,
// and end it before the Coordinator.
func (f *Fleet) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { f.watch(ctx) })
	parts.Go(func() { f.voter.Run(ctx) })
	parts.Go(func() { f.counter.Run(ctx) })
	parts.Go(func() { f.vantage.run(ctx, f.doubts) })
	parts.Go(func() { f.doubts.run(ctx) })
	parts.Go(func() { f.others.run(ctx) })
	parts.Go(func() { f.config.Engine.FollowDependencies(ctx, f.others.engine) })
	parts.Go(func() { f.others.engine.FollowDependencies(ctx, f.config.Engine) })
	for {
		owned, changed := f.config.Coordinator.Owned()
		isDone := f.reconcile(ctx, owned)
		var again <-chan time.Time
		if !isDone {
			again = time.After(storeInterval)
		}
		select {
		case <-changed:
		case <-f.wake:
		case <-again:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
			f.store(last, owned, nil, 0)
			return
		}
	}
}

// watch notes the shards whose probes have other verdicts or instances, until ctx is done.
func (f *Fleet) watch(ctx context.Context) {
	sub := f.config.Engine.Subscribe()
	defer sub.Close()
	for {
		status, err := sub.Next(ctx)
		if err != nil {
			return
		}
		f.desiredMu.Lock()
		f.mark(status.ID.Target)
		wasCollecting := f.isCollecting
		f.isCollecting = true
		f.desiredMu.Unlock()
		if !wasCollecting {
			time.AfterFunc(collectDelay, func() { notify(f.wake) })
		}
		if f.hasQuorum(status.ID) {
			f.countInstances(shard.Of(status.ID.Target), status.ID)
			continue
		}
		target := status.ID.Target
		f.doubts.probed(target, verdictOf(f.config.Engine, target, f.decidesAlone))
	}
}

// mark says that the memory of a target is to be stored. It needs desiredMu.
func (f *Fleet) mark(target string) {
	id := shard.Of(target)
	if all, isMarked := f.changed[id]; !isMarked {
		f.changed[id] = names{target: true}
	} else if all != nil {
		all[target] = true
	}
}

// decidesAlone reports whether a probe is one of the fleet that its owner alone decides.
func (f *Fleet) decidesAlone(id probe.ID) bool {
	f.desiredMu.Lock()
	defer f.desiredMu.Unlock()
	p := f.desiredProbe(id)
	_, isJoint := p.Handler.(joint)
	return p.Handler != nil && !isJoint
}

// reconcile makes the engine probe what is owned, and returns false if it has to be called again.
func (f *Fleet) reconcile(ctx context.Context, owned coord.Owned) (isDone bool) {
	isDone = true
	for _, step := range []func(context.Context, coord.Owned) bool{f.take, f.storeDue, f.release, f.sweep} {
		bounded, cancel := context.WithTimeout(ctx, patience)
		isDone = step(bounded, owned) && isDone
		cancel()
	}
	return isDone
}

// storeDue stores what is due.
func (f *Fleet) storeDue(ctx context.Context, owned coord.Owned) (isDone bool) {
	return f.store(ctx, owned, nil, storeInterval)
}

// noTargets are those of a shard without any.
var noTargets = &Targets{}

// take adds the targets of shards that are owned and removes those of others. Shards whose memories
// cannot be loaded wait. Those of a shard that was lost for a time are loaded again. What this engine makes of memories
// is stored before it loads further ones, since it may end at any time.
func (f *Fleet) take(ctx context.Context, owned coord.Owned) (isDone bool) {
	f.desiredMu.Lock()
	desired, isDesired := f.desired, f.isDesired
	f.desiredMu.Unlock()
	if !isDesired {
		return true // until Apply was called: what is stored must not be deleted
	}
	var loading, ready []shard.ID
	for id, o := range owned {
		switch known := f.stored[id]; {
		case known == nil, o.Token != 0 && o.Token != known.token:
			loading = append(loading, id)
		case f.applied[id] != cmp.Or(desired[id], noTargets):
			ready = append(ready, id)
		}
	}
	for id := range f.applied {
		if _, ok := owned[id]; !ok {
			ready = append(ready, id)
		}
	}
	f.others.keep(desired, f.applied)
	slices.Sort(loading)
	isDone = f.replace(ready, owned, desired, nil)
	isStored := true
	for batch := range slices.Chunk(loading, coord.MaxTransactions) {
		loaded, err := f.config.Coordinator.Load(ctx, batch...)
		if err != nil {
			f.config.Logger.Warn("memories of shards cannot be loaded, trying again", "shards", len(loading), "error", err)
			return false
		}
		isDone = f.replace(batch, owned, desired, loaded) && isDone
		if isStored {
			isStored = f.store(ctx, owned, batch, 0)
		}
	}
	return isDone && isStored
}

// replace replaces the targets of shards in the engine by those that are desired, or removes them from it if
// they are not owned. If that cannot be done at once, it is done for each shard alone.
func (f *Fleet) replace(ids []shard.ID, owned coord.Owned, desired map[shard.ID]*Targets, loaded map[shard.ID]coord.Memories) (isDone bool) {
	c := newChange()
	for _, id := range ids {
		o, isOwned := owned[id]
		if !isOwned {
			f.others.add(id, desired[id], f.snapshot(id, nil))
			c.replace(id, f.applied[id], nil, memories{})
			continue
		}
		m := memories{}
		if l, isLoaded := loaded[id]; isLoaded {
			m = f.recall(id, l)
			c.stored[id] = f.storedOf(o.Token, l)
			c.stored[id].causes = m.causes
		}
		c.replace(id, f.applied[id], cmp.Or(desired[id], noTargets), m)
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
	f.config.Logger.Error("the targets of a shard cannot be changed, trying again", "shard", ids[0].String(), "error", err)
	return false
}

// storedOf notes what was loaded.
func (f *Fleet) storedOf(token coord.Revision, l coord.Memories) *stored {
	s := &stored{token: token, sums: make(map[string]sums, len(l.ByTarget))}
	for target, value := range l.ByTarget {
		s.sums[target] = sums{f.sum(value)}
	}
	return s
}

// sum returns a hash, which is 0 for no memory only.
func (f *Fleet) sum(value []byte) uint64 {
	if value == nil {
		return 0
	}
	return max(maphash.Bytes(f.seed, value), 1)
}

// recall returns the memories with which this engine goes on from what was loaded. Of targets that it has
// probed all along these are the restarts that another engine has made meanwhile.
func (f *Fleet) recall(id shard.ID, l coord.Memories) memories {
	known, m := f.stored[id], newMemories()
	if known != nil {
		m.causes = maps.Clone(known.causes)
	}
	for target, value := range l.ByTarget {
		if known != nil && slices.Contains(known.sums[target], f.sum(value)) {
			continue // this engine has stored it
		}
		if err := m.add(target, value); err != nil { // of another release
			f.config.Logger.Error("the memory of a target cannot be read, it begins anew", "target", target, "error", err)
		}
	}
	switch {
	case known != nil:
		clear(m.probes)
	case l.IsContinued:
	case !l.IsRecent:
		m.resume(Forget)
	default:
		m.resume(f.config.Resume)
	}
	return m
}

// change makes a change of the engine and of the controller.
func (f *Fleet) change(c *change) error {
	if len(c.shards) == 0 {
		return nil
	}
	if _, err := f.owner.Change(c.Change); err != nil {
		return err
	}
	f.joints.forget(c.Remove)
	if err := f.config.Restarts.TakeOver(c.units, c.removedUnits, c.restarts); err != nil {
		return err
	}
	f.note(c)
	for id, targets := range c.shards {
		if targets != nil {
			f.others.remove(id)
			f.countInstances(id, targets.jointProbes()...)
		}
	}
	return nil
}

// note notes a change that was made.
func (f *Fleet) note(c *change) {
	f.desiredMu.Lock()
	defer f.desiredMu.Unlock()
	for id, targets := range c.shards {
		if targets == nil {
			delete(f.applied, id)
			delete(f.stored, id)
			delete(f.unswept, id)
			delete(f.changed, id)
			delete(f.loaded, id)
			continue
		}
		f.applied[id] = targets
		f.unswept[id] = true
		f.changed[id] = nil
	}
	maps.Copy(f.stored, c.stored)
	for id, s := range c.stored {
		f.loaded[id] = s.token
	}
}

// store stores the memories of targets of some shards that have changed, of all shards if there are none, except those
// of shards that had some stored within an interval. While the lease is lost they wait: all are compared when they were
// loaded again.
func (f *Fleet) store(ctx context.Context, owned coord.Owned, some []shard.ID, interval time.Duration) (isDone bool) {
	due, later := map[shard.ID]names{}, map[shard.ID]names{}
	for id, targets := range f.takeChanged(some) {
		switch s := f.stored[id]; {
		case s == nil || s.token == 0 || s.token != owned[id].Token:
		case time.Since(s.at) < interval:
			later[id] = targets
		default:
			due[id] = targets
		}
	}
	maps.Copy(later, f.storeShards(ctx, due))
	f.desiredMu.Lock()
	defer f.desiredMu.Unlock()
	for id, targets := range later {
		if _, isMarked := f.changed[id]; !isMarked || targets == nil {
			f.changed[id] = targets
			continue
		}
		for target := range targets {
			f.mark(target)
		}
	}
	return len(later) == 0
}

// takeChanged returns the targets of some shards that have changed, of all if there are none, and forgets them.
func (f *Fleet) takeChanged(some []shard.ID) map[shard.ID]names {
	f.desiredMu.Lock()
	defer f.desiredMu.Unlock()
	taken := f.changed
	if some == nil {
		f.changed, f.isCollecting = map[shard.ID]names{}, false
		return taken
	}
	taken = map[shard.ID]names{}
	for _, id := range some {
		if targets, hasChanged := f.changed[id]; hasChanged {
			taken[id] = targets
			delete(f.changed, id)
		}
	}
	return taken
}

// storeShards stores the memories of targets, unless they are as they were stored last, and marks their shards as
// loaded. It returns those of which that has failed.
func (f *Fleet) storeShards(ctx context.Context, due map[shard.ID]names) (failed map[shard.ID]names) {
	var all []coord.Memory
	for id, targets := range due {
		all = append(all, f.differing(id, targets)...)
	}
	failed = map[shard.ID]names{}
	n, now := 0, time.Now()
	var last error
	for i, err := range f.config.Coordinator.Store(ctx, all...) {
		m := all[i]
		id := shard.Of(m.Target)
		s := f.stored[id]
		s.at = now
		switch {
		case err != nil:
			n, last = n+1, err
			s.sums[m.Target] = s.sums[m.Target].tried(f.sum(m.Value))
			if failed[id] == nil {
				failed[id] = names{}
			}
			failed[id][m.Target] = true
		case m.Value == nil:
			delete(s.sums, m.Target)
		default:
			s.sums[m.Target] = sums{f.sum(m.Value)}
		}
	}
	if n > 0 {
		f.config.Logger.Warn("memories of targets cannot be stored, trying again", "targets", n, "error", last)
	}
	f.markLoaded(ctx, due, failed)
	return failed
}

// markLoaded marks those shards as loaded that are not yet, except those of which something could not be stored. It
// adds those to the latter for which that fails.
func (f *Fleet) markLoaded(ctx context.Context, shards, failed map[shard.ID]names) {
	tokens := map[shard.ID]coord.Revision{}
	for id := range shards {
		if _, hasFailed := failed[id]; !hasFailed && !f.stored[id].isMarked {
			tokens[id] = f.stored[id].token
		}
	}
	if len(tokens) == 0 {
		return
	}
	err := f.config.Coordinator.MarkLoaded(ctx, tokens)
	for id := range tokens {
		if f.stored[id].isMarked = err == nil; err != nil {
			failed[id] = names{}
		}
	}
	if err != nil {
		f.config.Logger.Warn("shards that are taken over cannot be marked, trying again: until then this engine restarts none of their targets", "shards", len(tokens), "error", err)
	}
}

// differing returns the memories of targets of a shard that are not as they were stored last.
func (f *Fleet) differing(id shard.ID, targets names) (all []coord.Memory) {
	s := f.stored[id]
	values, incomplete := f.snapshot(id, targets).encode()
	for target, err := range incomplete {
		if !f.incomplete[target] {
			f.config.Logger.Error("a part of the memory of a target is not stored: the next owner begins anew with it", "target", target, "error", err)
		}
		f.incomplete[target] = true
	}
	for target, value := range values {
		if !s.sums[target].isStored(f.sum(value)) {
			all = append(all, coord.Memory{Target: target, Token: s.token, Value: value})
		}
	}
	for target := range s.sums {
		if _, isKept := values[target]; targets.has(target) && !isKept {
			all = append(all, coord.Memory{Target: target, Token: s.token})
		}
	}
	return all
}

// snapshot returns what this engine remembers about some of the targets of a shard.
func (f *Fleet) snapshot(in shard.ID, some names) memories {
	of, known := f.applied[in], map[probe.ID]cause{}
	if s := f.stored[in]; s != nil {
		known = s.causes
	}
	all := newMemories()
	for id := range of.Probes {
		if !some.has(id.Target) {
			continue
		}
		m, ok := f.config.Engine.Snapshot(id)
		if !ok {
			continue
		}
		all.probes[id] = m
		if why := f.cause(id, m, known[id]); why.isOf(m) {
			all.causes[id], known[id] = why, why
		} else {
			delete(known, id)
		}
	}
	for target := range of.Units {
		if some.has(target) {
			if m, ok := f.config.Restarts.Memory(target); ok {
				all.restarts[target] = m
			}
		}
	}
	return all
}

// cause returns why a probe with a memory fails: what is known already, or else what its latest attempt has found.
func (f *Fleet) cause(id probe.ID, m engine.Memory, known cause) cause {
	if known.isOf(m) {
		return known
	}
	st, _ := f.config.Engine.Status(id)
	if st.Verdict != probe.Failing || st.Instance != m.State.Instance || st.Result.Outcome != probe.Failure {
		return cause{}
	}
	return cause{m.Since, st.Result.Reason, st.Result.Detail}
}

// release gives up the shards that are leaving, with the memories that they have now.
func (f *Fleet) release(ctx context.Context, owned coord.Owned) (isDone bool) {
	isDone = true
	due := map[shard.ID]names{}
	var leaving []shard.ID
	for id, o := range owned {
		if !o.Leaving {
			continue
		}
		isDone = false // the next pass removes them
		switch s := f.stored[id]; {
		case s == nil: // not probed yet
			leaving = append(leaving, id)
		case s.token == o.Token:
			due[id] = nil
		}
	}
	failed := f.storeShards(ctx, due)
	for id := range due {
		if _, hasFailed := failed[id]; !hasFailed {
			leaving = append(leaving, id)
		}
	}
	if len(leaving) == 0 {
		return isDone
	}
	ctx, cancel := context.WithTimeout(ctx, storeInterval) // an act may last minutes
	defer cancel()
	slices.Sort(leaving)
	_ = f.config.Coordinator.Release(ctx, leaving...)
	return false
}

// sweep deletes the records of acts for targets, and the joint verdicts of probes, that are gone from some of the shards
// that may have any: that is not urgent.
func (f *Fleet) sweep(ctx context.Context, owned coord.Owned) (isDone bool) {
	var some []shard.ID
	has := map[string]bool{}
	for id := range f.unswept {
		if owned[id].Token == 0 {
			continue
		}
		if len(some) == coord.MaxTransactions {
			break
		}
		some = append(some, id)
		for target := range f.applied[id].Units {
			has[target] = true
		}
		for p := range f.applied[id].Probes {
			has[p.Target] = true
		}
	}
	if len(some) == 0 {
		return true
	}
	if err := f.config.Coordinator.Forget(ctx, some, func(target string) bool { return has[target] }); err != nil {
		f.config.Logger.Warn("records of acts cannot be deleted, trying again", "shards", len(some), "error", err)
		return false
	}
	if err := f.counter.Sweep(ctx, some); err != nil {
		f.config.Logger.Warn("joint verdicts of probes without a quorum cannot be deleted, trying again", "shards", len(some), "error", err)
		return false
	}
	for _, id := range some {
		delete(f.unswept, id)
	}
	return len(some) < coord.MaxTransactions
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

func notify(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// change collects what is to be changed for several shards.
type change struct {
	engine.Change
	units        map[string]restart.Unit
	removedUnits []string
	restarts     map[string]restart.Memory // of units
	shards       map[shard.ID]*Targets     // that there are afterwards; nil: none
	stored       map[shard.ID]*stored      // of those that were loaded
}

func newChange() *change {
	return &change{
		Change: engine.Change{Set: probe.Set{}, Memories: map[probe.ID]engine.Memory{}},
		units:  map[string]restart.Unit{}, restarts: map[string]restart.Memory{}, shards: map[shard.ID]*Targets{}, stored: map[shard.ID]*stored{},
	}
}

// replace replaces the targets of a shard. Memories that are none of its probes and units are left out.
func (c *change) replace(id shard.ID, before, now *Targets, m memories) {
	c.shards[id] = now
	if now == nil {
		now = &Targets{}
	}
	if before == nil {
		before = &Targets{}
	}
	for p, desired := range now.Probes {
		c.Set[p] = desired
		memory, ok := m.probes[p]
		if !ok || memory.Check(desired.Rule) != nil {
			continue
		}
		c.Memories[p] = memory
		if now.Units[p.Target].Driver == nil { // its instance is known by its probes only
			c.restarts[p.Target] = restart.Memory{Instance: memory.State.Instance, Since: memory.InstanceSince}
		}
	}
	for p := range before.Probes {
		if _, kept := now.Probes[p]; !kept {
			c.Remove = append(c.Remove, p)
		}
	}
	maps.Copy(c.units, now.Units)
	for target := range now.Units {
		if memory, ok := m.restarts[target]; ok {
			c.restarts[target] = memory
		}
	}
	for target := range before.Units {
		if _, kept := now.Units[target]; !kept {
			c.removedUnits = append(c.removedUnits, target)
		}
	}
}
