package fleet

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/coord/shard"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// others are the targets of the shards that this engine does not probe, as their owners have stored them.
type others struct {
	coordinator *coord.Coordinator
	log         *slog.Logger
	engine      *engine.Engine // never runs
	owner       *engine.Owner
	wake        chan struct{} // capacity 1: outdated has shards
	begun       func()        // is called when isKnown is set

	othersMu sync.Mutex // guards all below; is held while engine changes
	shown    map[shard.ID]*Targets
	outdated map[shard.ID]bool // whose memories are to be loaded
	isKnown  bool              // the store has answered: before, none are shown
}

func newOthers(c *coord.Coordinator, log *slog.Logger, begun func()) *others {
	e := engine.New(engine.Config{NoIsolationCheck: true})
	return &others{
		coordinator: c, log: log, engine: e, owner: e.Owner("fleet"), wake: make(chan struct{}, 1), begun: begun,
		shown: map[shard.ID]*Targets{}, outdated: map[shard.ID]bool{},
	}
}

// Others returns an engine that never runs, with the targets of the fleet that other engines probe: their
// verdicts, their instances, and since when they have them, as their owners have stored them. Results of
// attempts, and what other engines alone know, such as pauses, are not there. While the store cannot be
// reached, all stays as it was. A target that moves may be in both engines for a moment.
func (f *Fleet) Others() *engine.Engine { return f.others.engine }

// run keeps the memories of shown targets up to date until ctx is done.
func (o *others) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { o.coordinator.WatchMemories(ctx, o.changed) })
	isLogged := false
	for ctx.Err() == nil {
		err := o.load(ctx)
		if err != nil && !isLogged && ctx.Err() == nil {
			o.log.Warn("what other engines have stored cannot be loaded, trying again", "error", err)
		}
		isLogged = err != nil
		wake, again := o.wake, (<-chan time.Time)(nil)
		if err != nil { // a store may refuse requests at once, since it has too many
			wake, again = nil, time.After(storeInterval)
		}
		select {
		case <-wake:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// changed notes that the store has answered, and that the memories of shards may be others than before.
func (o *others) changed(ids []shard.ID) {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	if !o.isKnown {
		o.isKnown = true
		o.begun()
	}
	o.mark(ids)
	if len(o.outdated) > 0 {
		notify(o.wake)
	}
}

// mark says that the memories of shards are to be loaded, of those that are shown. It needs othersMu.
func (o *others) mark(ids []shard.ID) {
	for _, id := range ids {
		if o.shown[id] != nil {
			o.outdated[id] = true
		}
	}
}

// load loads the memories that are outdated, until the store returns an error: then it has to be called again.
func (o *others) load(ctx context.Context) error {
	o.othersMu.Lock()
	ids := slices.Sorted(maps.Keys(o.outdated))
	o.othersMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for batch := range slices.Chunk(ids, coord.MaxTransactions) {
		o.unmark(batch) // before they are read: they may be marked again meanwhile
		loaded, err := o.coordinator.Load(ctx, batch...)
		if err != nil {
			o.othersMu.Lock()
			o.mark(batch)
			o.othersMu.Unlock()
			return err
		}
		for id, stored := range loaded {
			o.restate(id, stored)
		}
	}
	return nil
}

func (o *others) unmark(ids []shard.ID) {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	for _, id := range ids {
		delete(o.outdated, id)
	}
}

// restate shows the targets of a shard as they are in its memories.
func (o *others) restate(id shard.ID, stored coord.Memories) {
	m := newMemories()
	for target, value := range stored.ByTarget {
		if err := m.add(target, value); err != nil {
			o.log.Warn("the memory of another engine's target cannot be read, it is shown as before", "target", target, "error", err)
		}
	}
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	if o.shown[id] != nil {
		o.restateTargets(m)
	}
}

// restateTargets shows targets as they are in memories, those of them that are shown. It needs othersMu.
func (o *others) restateTargets(m memories) {
	byTarget := map[string]map[probe.ID]engine.Memory{}
	for id, memory := range m.probes {
		if _, exists := o.engine.Status(id); !exists || memory.State.Instance == "" {
			continue // of another configuration, or not probed yet
		}
		if byTarget[id.Target] == nil {
			byTarget[id.Target] = map[probe.ID]engine.Memory{}
		}
		byTarget[id.Target][id] = memory
	}
	for target, probes := range byTarget {
		in := m.restarts[target].Shown(target)
		if in.ID == "" { // nothing restarts it
			for _, memory := range probes {
				in = probe.Instance{Target: target, ID: memory.State.Instance, Phase: probe.Running, Since: memory.InstanceSince}
			}
		}
		if err := o.engine.Restate(in, probes); err != nil {
			o.log.Debug("what another engine has found out does not fit the configuration of this one", "target", target, "error", err)
		}
	}
}

// keep shows the targets that are desired, except those that the fleet's own engine has, and no others.
func (o *others) keep(desired, applied map[shard.ID]*Targets) {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	if !o.isKnown {
		return
	}
	changed := map[shard.ID]*Targets{}
	for id, targets := range desired {
		if applied[id] == nil && o.shown[id] != targets {
			changed[id] = targets
			o.outdated[id] = true
		}
	}
	for id := range o.shown {
		if desired[id] == nil {
			changed[id] = nil
		}
	}
	o.change(changed)
	if len(o.outdated) > 0 {
		notify(o.wake)
	}
}

// add shows targets that the fleet's own engine is about to lose, as it knows them. Without targets it does
// nothing.
func (o *others) add(id shard.ID, targets *Targets, m memories) {
	if targets == nil {
		return
	}
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	o.change(map[shard.ID]*Targets{id: targets})
	o.restateTargets(m)
}

// remove no longer shows the targets of a shard, since the fleet's own engine has them.
func (o *others) remove(id shard.ID) {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	o.change(map[shard.ID]*Targets{id: nil})
}

// change replaces the targets of shards; nil for none. It needs othersMu.
func (o *others) change(shards map[shard.ID]*Targets) {
	c, gone := engine.Change{Set: probe.Set{}}, map[string]bool{}
	for id, now := range shards {
		for p := range o.shown[id].probes() {
			gone[p.Target] = true
			if _, kept := now.probes()[p]; !kept {
				c.Remove = append(c.Remove, p)
			}
		}
		for p, desired := range now.probes() {
			c.Set[p] = shownProbe(desired)
			delete(gone, p.Target)
		}
		if o.shown[id] = now; now == nil {
			delete(o.shown, id)
			delete(o.outdated, id)
		}
	}
	if len(c.Set)+len(c.Remove) == 0 {
		return
	}
	if _, err := o.owner.Change(c); err != nil { // Apply has checked them
		o.log.Error("the targets of other engines cannot be shown", "error", err)
	}
	for target := range gone {
		o.engine.Report(probe.Instance{Target: target, Phase: probe.Absent}) // forgets its instance
	}
}

// shownProbe returns a probe to be shown, which is never attempted.
func shownProbe(p probe.Probe) probe.Probe {
	p.Target.Static = false // its instance is the one that is restated
	p.HandlerName = cmp.Or(p.HandlerName, "other")
	p.Handler, p.Revision = notAttempted{}, ""
	return p
}

// notAttempted is the handler of probes of others.
type notAttempted struct{}

func (notAttempted) Probe(context.Context, probe.Target) probe.Result {
	return probe.Result{Outcome: probe.Unknown, Reason: probe.ReasonOwnership}
}
