// Package fleet gives an engine the targets of the shards that it owns in a fleet (package coord).
//
// Every engine of the fleet is given the same targets. A shard that is taken over comes with what the
// owner before has stored of its probes: both are added to the engine in one step, so that no verdict is
// decided anew, and no restart is made twice or too early. A shard is given up after the acts that are being
// done for it, and after its memories were stored; until then it is probed. Instances are terminated by
// coord.Coordinator.Act only.
//
//	fleet.go   Fleet: follows what the Coordinator owns
//	others.go  the targets of other engines, as these have stored them
//	memory.go  the memories of a shard, of its probes and restarts, as bytes
//	act.go     a driver that terminates instances by acts
package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/coord/shard"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures a Fleet.
type Config struct {
	Coordinator *coord.Coordinator  // required; runs as long as Fleet.Run
	Engine      *engine.Engine      // required; the fleet's probes are those of its owner "fleet"
	Restarts    *restart.Controller // required; has the units of owned shards besides those of others, so that others use its Change and not its Apply; its Config.MayAct is Coordinator.MayAct
	Logger      *slog.Logger        // a line when the store cannot be read or written, and when a restart is withheld; default: none
}

// Targets are the targets of a fleet. They must not be changed after they were passed to Apply. A driver that may
// fail to terminate an instance must be a restart.Reporting: this engine keeps the shard of a target until its driver
// has exited or failed.
type Targets struct {
	Probes probe.Set
	Units  map[string]restart.Unit // by target; each driver is nil or a restart.External
}

// Fleet gives an engine the targets of its shards. Its methods are safe for concurrent use by multiple
// goroutines.
type Fleet struct {
	config Config
	owner  *engine.Owner
	others *others
	wake   chan struct{} // capacity 1: desired or changed were changed

	desiredMu    sync.Mutex // guards all below
	desired      map[shard.ID]*Targets
	changed      map[shard.ID]bool // whose memories are to be stored
	isCollecting bool              // wake is sent to after collectDelay

	applied map[shard.ID]*Targets // in the engine; this and all below are Run's own
	stored  map[shard.ID]stored   // of applied
	unswept map[shard.ID]bool     // may have records of acts for targets that are gone
}

// stored is what is known about the memories of a shard in the store.
type stored struct {
	sum   [sha256.Size]byte
	token coord.Revision // with which they were loaded or stored: under another one, another engine may have stored others
	at    time.Time      // when this engine has stored them last
}

// Changes of verdicts are collected for collectDelay before they are stored, and those of one shard for
// storeInterval after it was stored. What failed is tried again after storeInterval.
const (
	collectDelay  = 20 * time.Millisecond
	storeInterval = time.Second
)

// maxSwept bounds for how many shards one pass looks for records of acts: that is not urgent.
const maxSwept = 16

// patience bounds a pass over all shards, while the store does not answer.
const patience = 10 * time.Second

// New returns a Fleet without targets.
func New(c Config) (*Fleet, error) {
	if c.Coordinator == nil || c.Engine == nil || c.Restarts == nil {
		return nil, errors.New("fleet: Config.Coordinator, Config.Engine and Config.Restarts are required")
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	wake := make(chan struct{}, 1)
	return &Fleet{
		config: c, owner: c.Engine.Owner("fleet"), others: newOthers(c.Coordinator, c.Logger, func() { notify(wake) }), wake: wake,
		desired: map[shard.ID]*Targets{}, changed: map[shard.ID]bool{}, applied: map[shard.ID]*Targets{},
		stored: map[shard.ID]stored{}, unswept: map[shard.ID]bool{},
	}, nil
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
	f.desiredMu.Lock()
	before := f.desired
	f.desiredMu.Unlock()
	desired := f.divide(t, before)
	f.desiredMu.Lock()
	f.desired = desired
	f.desiredMu.Unlock()
	notify(f.wake)
	return nil
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
	parts.Go(func() { f.others.run(ctx) })
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
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			f.store(last, owned, 0)
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
		f.changed[shard.Of(status.ID.Target)] = true
		wasCollecting := f.isCollecting
		f.isCollecting = true
		f.desiredMu.Unlock()
		if !wasCollecting {
			time.AfterFunc(collectDelay, func() { notify(f.wake) })
		}
	}
}

// reconcile makes the engine probe what is owned, and returns false if it has to be called again.
func (f *Fleet) reconcile(ctx context.Context, owned coord.Owned) (isDone bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	isDone = f.take(ctx, owned)
	isDone = f.store(ctx, owned, storeInterval) && isDone
	isDone = f.release(ctx, owned) && isDone
	return f.sweep(ctx, owned) && isDone
}

// take adds the targets of shards that are owned and removes those of others. Shards whose memories
// cannot be loaded wait.
func (f *Fleet) take(ctx context.Context, owned coord.Owned) (isDone bool) {
	f.desiredMu.Lock()
	desired := f.desired
	f.desiredMu.Unlock()
	var loading, ready []shard.ID
	for id := range owned {
		switch now, before := desired[id], f.applied[id]; {
		case now == before:
		case hasOthers(now, before):
			loading = append(loading, id)
		default:
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
	for batch := range slices.Chunk(loading, coord.MaxTransactions) {
		loaded, err := f.config.Coordinator.Load(ctx, batch...)
		if err != nil {
			f.config.Logger.Warn("memories of shards cannot be loaded, trying again", "shards", len(loading), "error", err)
			return false
		}
		isDone = f.replace(batch, owned, desired, loaded) && isDone
	}
	return isDone
}

// hasOthers reports whether there are probes now that there were not before.
func hasOthers(now, before *Targets) bool {
	for p := range now.probes() {
		if _, ok := before.probes()[p]; !ok {
			return true
		}
	}
	return false
}

// replace replaces the targets of shards in the engine by those that are desired, or removes them from it if
// they are not owned. If that cannot be done at once, it is done for each shard alone.
func (f *Fleet) replace(ids []shard.ID, owned coord.Owned, desired map[shard.ID]*Targets, loaded map[shard.ID][]byte) (isDone bool) {
	c := newChange()
	for _, id := range ids {
		if _, ok := owned[id]; !ok {
			f.others.add(id, desired[id], f.snapshot(f.applied[id]))
			c.replace(id, f.applied[id], nil, memories{})
			continue
		}
		m := f.decode(id, owned[id].Token, loaded[id])
		c.replace(id, f.applied[id], desired[id], m)
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

// decode returns the memories of a shard from what was loaded, and notes that.
func (f *Fleet) decode(id shard.ID, token coord.Revision, loaded []byte) memories {
	if loaded == nil {
		return memories{}
	}
	f.stored[id] = stored{sum: sha256.Sum256(loaded), token: token}
	m, err := decode(loaded)
	if err != nil { // of another release
		f.config.Logger.Error("the memories of a shard cannot be read, its probes begin anew", "shard", id.String(), "error", err)
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
	if err := f.config.Restarts.TakeOver(c.units, c.removedUnits, c.restarts); err != nil {
		return err
	}
	for id, targets := range c.shards {
		if targets == nil {
			delete(f.applied, id)
			delete(f.stored, id)
			delete(f.unswept, id)
			continue
		}
		f.applied[id] = targets
		f.unswept[id] = true
		f.others.remove(id)
	}
	return nil
}

// store stores the memories of owned shards that have changed, except those that were stored within an
// interval. While the lease is lost they wait.
func (f *Fleet) store(ctx context.Context, owned coord.Owned, interval time.Duration) (isDone bool) {
	f.desiredMu.Lock()
	changed := f.changed
	f.changed, f.isCollecting = map[shard.ID]bool{}, false
	f.desiredMu.Unlock()
	maps.DeleteFunc(changed, func(id shard.ID, _ bool) bool { return f.applied[id] == nil })
	for id := range f.applied {
		if f.stored[id].token != owned[id].Token {
			changed[id] = true
		}
	}
	isDone = true
	var due []shard.ID
	for id := range changed {
		switch {
		case owned[id].Token == 0:
		case time.Since(f.stored[id].at) < interval:
			isDone = false
		default:
			due = append(due, id)
		}
	}
	for _, id := range f.storeShards(ctx, owned, due) {
		delete(changed, id)
	}
	f.desiredMu.Lock()
	defer f.desiredMu.Unlock()
	for id := range changed {
		f.changed[id] = true
		isDone = isDone && owned[id].Token == 0
	}
	return isDone
}

// storeShards stores the memories of shards, unless they are as they were stored last, and returns those
// that are up to date then.
func (f *Fleet) storeShards(ctx context.Context, owned coord.Owned, ids []shard.ID) (upToDate []shard.ID) {
	var all []coord.Memories
	var sums []stored
	for _, id := range ids {
		value, err := f.snapshot(f.applied[id]).encode()
		if err != nil {
			f.config.Logger.Error("the memories of a shard cannot be encoded", "shard", id.String(), "error", err)
			continue
		}
		now := stored{sha256.Sum256(value), owned[id].Token, time.Now()}
		if last := f.stored[id]; last.sum == now.sum && last.token == now.token {
			upToDate = append(upToDate, id)
			continue
		}
		all = append(all, coord.Memories{Shard: id, Token: owned[id].Token, Value: value})
		sums = append(sums, now)
	}
	failed := 0
	var last error
	for i, err := range f.config.Coordinator.Store(ctx, all...) {
		if err != nil {
			failed, last = failed+1, err
			delete(f.stored, all[i].Shard) // it may have been stored all the same
			continue
		}
		f.stored[all[i].Shard] = sums[i]
		upToDate = append(upToDate, all[i].Shard)
	}
	if failed > 0 {
		f.config.Logger.Warn("memories of shards cannot be stored, trying again", "shards", failed, "error", last)
	}
	return upToDate
}

// snapshot returns what this engine remembers about targets.
func (f *Fleet) snapshot(targets *Targets) memories {
	all := memories{map[probe.ID]engine.Memory{}, map[string]restart.Memory{}}
	for id := range targets.Probes {
		if m, ok := f.config.Engine.Snapshot(id); ok {
			all.probes[id] = m
		}
	}
	for target := range targets.Units {
		if m, ok := f.config.Restarts.Memory(target); ok {
			all.restarts[target] = m
		}
	}
	return all
}

// release gives up the shards that are leaving, with the memories that they have now.
func (f *Fleet) release(ctx context.Context, owned coord.Owned) (isDone bool) {
	var leaving, probed []shard.ID
	for id, o := range owned {
		switch {
		case !o.Leaving:
		case f.applied[id] == nil:
			leaving = append(leaving, id)
		default:
			probed = append(probed, id)
		}
	}
	if len(leaving)+len(probed) == 0 {
		return true
	}
	leaving = append(leaving, f.storeShards(ctx, owned, probed)...)
	ctx, cancel := context.WithTimeout(ctx, storeInterval) // an act may last minutes
	defer cancel()
	slices.Sort(leaving)
	_ = f.config.Coordinator.Release(ctx, leaving...)
	return false // the next pass removes them
}

// sweep deletes the records of acts for targets that are gone from some of the shards that may have any.
func (f *Fleet) sweep(ctx context.Context, owned coord.Owned) (isDone bool) {
	n := 0
	for id := range f.unswept {
		token := owned[id].Token
		if token == 0 {
			continue
		}
		if n++; n > maxSwept {
			return false
		}
		targets := f.applied[id]
		has := map[string]bool{}
		for p := range targets.Probes {
			has[p.Target] = true
		}
		err := f.config.Coordinator.Forget(ctx, id, token, func(target string) bool { _, ok := targets.Units[target]; return ok || has[target] })
		if err != nil {
			f.config.Logger.Warn("records of a shard cannot be deleted, trying again", "shard", id.String(), "error", err)
			return false
		}
		delete(f.unswept, id)
	}
	return true
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
}

func newChange() *change {
	return &change{
		Change: engine.Change{Set: probe.Set{}, Memories: map[probe.ID]engine.Memory{}},
		units:  map[string]restart.Unit{}, restarts: map[string]restart.Memory{}, shards: map[shard.ID]*Targets{},
	}
}

// replace replaces the targets of a shard. Memories that are none of its probes and units are left out, and
// so are those of units that there were before.
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
		memory, ok := m.restarts[target]
		if _, had := before.Units[target]; ok && !had {
			c.restarts[target] = memory
		}
	}
	for target := range before.Units {
		if _, kept := now.Units[target]; !kept {
			c.removedUnits = append(c.removedUnits, target)
		}
	}
}
