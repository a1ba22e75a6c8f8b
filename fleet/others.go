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
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// others are the targets of the shards that this engine does not probe, as their owners have stored them.
type others struct {
	coordinator *coord.Coordinator
	log         *slog.Logger
	engine      *engine.Engine // never runs
	owner       *engine.Owner
	sparse      *sparselog.Logger // what is tried again
	wake        wake.Signal       // outdated has shards
	begun       func()            // is called when isKnown is set

	othersMu   sync.Mutex // guards all below; is held while engine changes
	shown      map[shard.ID]*Targets
	outdated   map[shard.ID]bool            // whose memories are to be loaded
	loading    map[shard.ID]map[string]bool // whose memories are being loaded, and the targets with later ones
	loaded     map[shard.ID]coord.Revision  // of the latest memory that was loaded while changes are watched
	marked     map[shard.ID]coord.Revision  // of shown: by which their owners have marked them as loaded; 0 for none
	isKnown    bool                         // the store has answered: before, none are shown
	isWatched  bool                         // later memories are passed to changed
	completeAt time.Time                    // see Fleet.Heard
	missing    map[string]bool              // targets that are shown, and of which the store has no memory
}

func newOthers(c *coord.Coordinator, log *slog.Logger, begun func()) *others {
	e := engine.New(engine.Config{NoIsolationCheck: true})
	return &others{
		coordinator: c, log: log, sparse: sparselog.New(log), engine: e, owner: e.Owner("fleet"), wake: wake.New(), begun: begun,
		shown: map[shard.ID]*Targets{}, outdated: map[shard.ID]bool{}, loading: map[shard.ID]map[string]bool{}, loaded: map[shard.ID]coord.Revision{}, marked: map[shard.ID]coord.Revision{}, missing: map[string]bool{},
	}
}

// Others returns an engine that never runs, with the targets of the fleet that other engines probe: their
// verdicts, why they fail, their instances, since when they have them, and whether they are ejected or damped, as
// their owners have stored them. Results of other attempts than those that have made probes fail are not there. While
// the store cannot be reached, all stays as it was.
func (f *Fleet) Others() *engine.Engine { return f.others.engine }

// Union returns the targets of Config.Engine and of Others as one source: the targets of all engines.
func (f *Fleet) Union() *engine.Union { return f.union }

// Heard returns when the store has last answered this engine while Others had all that the store has; zero if never.
// Until the memories of a shard were read, and while changes may be missed, it stays as it was.
func (f *Fleet) Heard() time.Time {
	o := f.others
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	o.noteComplete()
	return o.completeAt
}

// Stale returns a function that reports whether a target is stale, nil if none is: Others shows it, and its owner has not
// confirmed its verdicts for longer than the TTL, or this engine has not heard of that. They stay as they were. Any goroutine
// may call both.
func (f *Fleet) Stale() func(target string) bool {
	f.others.othersMu.Lock()
	marked := maps.Clone(f.others.marked)
	f.others.othersMu.Unlock()
	isOld, unconfirmed := time.Since(f.Heard()) > f.config.Coordinator.TTL(), f.config.Coordinator.Unconfirmed(marked)
	if !isOld && unconfirmed == nil {
		return nil
	}
	return func(target string) bool {
		return (isOld || unconfirmed[shard.Of(target)]) && f.union.IsOther(target)
	}
}

// noteComplete sets completeAt if the targets are shown as the store has them. It is called before that changes, and
// needs othersMu.
func (o *others) noteComplete() {
	if o.isWatched && len(o.outdated)+len(o.loading) == 0 {
		o.completeAt = o.coordinator.Heard()
	}
}

// run keeps the memories of shown targets up to date until ctx is done.
func (o *others) run(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end() // also after a panic
	watching.Go(func() { o.coordinator.WatchMemories(ctx, o.watched, o.changed, o.unwatched) })
	for ctx.Err() == nil {
		err := o.load(ctx)
		if err != nil && ctx.Err() == nil {
			o.sparse.Warn("what other engines have stored cannot be loaded, trying again", "error", err)
		}
		wake, again := o.wake, (<-chan time.Time)(nil)
		if o.missAgain() {
			again = time.After(storeInterval)
		}
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

// watched has all memories loaded: changed is called with those that are stored from now on.
func (o *others) watched() {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	if !o.isKnown {
		o.isKnown = true
		o.begun()
	}
	clear(o.loaded) // the store may have been restored, with lower revisions
	clear(o.marked)
	o.outdate(slices.Collect(maps.Keys(o.shown)))
	o.isWatched = true // not before, since changes may have been missed until now
}

// unwatched says that changed is no longer called.
func (o *others) unwatched() {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	o.noteComplete()
	o.isWatched = false
}

// changed shows targets as they are in memories that were stored now: the last one of each. The watch may be behind what was
// loaded: earlier memories are left out.
func (o *others) changed(stored []coord.Memory, marked map[shard.ID]coord.Revision) {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	for id, token := range marked {
		if o.shown[id] != nil {
			o.marked[id] = max(o.marked[id], token)
		}
	}
	last := map[string][]byte{}
	for _, one := range stored {
		id := shard.Of(one.Target)
		if one.Modified <= o.loaded[id] {
			continue
		}
		if later := o.loading[id]; later != nil {
			later[one.Target] = true
		}
		if o.shown[id] != nil {
			last[one.Target] = one.Value
		}
	}
	m, missing := newMemories(), []string(nil)
	for target, value := range last {
		if value == nil {
			missing = append(missing, target)
			continue
		}
		o.read(m, target, value)
	}
	o.restate(m)
	if o.miss(missing); len(missing) > 0 {
		o.wake.Set()
	}
}

// outdate has the memories of shards loaded. It needs othersMu.
func (o *others) outdate(ids []shard.ID) {
	if len(ids) == 0 {
		return
	}
	o.noteComplete()
	for _, id := range ids {
		o.outdated[id] = true
	}
	o.wake.Set()
}

// load loads the memories that are outdated, until the store returns an error: then it has to be called again.
func (o *others) load(ctx context.Context) error {
	for ids := o.begin(); len(ids) > 0; ids = o.begin() {
		loading, cancel := context.WithTimeout(ctx, stepTimeout)
		loaded, err := o.coordinator.Load(loading, ids...)
		cancel()
		o.end(ids, loaded)
		if err != nil {
			return err
		}
	}
	return nil
}

// begin returns the next shards whose memories are to be loaded by one request, and notes that they are.
func (o *others) begin() []shard.ID {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	ids := slices.Sorted(maps.Keys(o.outdated))
	ids = ids[:min(len(ids), coord.MaxTransactions)]
	for _, id := range ids {
		delete(o.outdated, id)
		o.loading[id] = map[string]bool{}
	}
	return ids
}

// end shows the targets of shards as they are in what was loaded, except those that have changed meanwhile. Shards of
// which nothing was loaded are outdated again.
func (o *others) end(ids []shard.ID, loaded map[shard.ID]coord.Memories) {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	m, missing := newMemories(), []string(nil)
	for _, id := range ids {
		later := o.loading[id]
		delete(o.loading, id)
		stored, isLoaded := loaded[id]
		switch {
		case o.shown[id] == nil:
			continue
		case !isLoaded:
			o.outdated[id] = true
		default:
			o.loaded[id] = stored.Modified
			o.marked[id] = max(o.marked[id], stored.Loaded)
		}
		for target, value := range stored.ByTarget {
			if !later[target] {
				o.read(m, target, value)
			}
		}
		for p := range o.shown[id].probes() {
			if _, exists := stored.ByTarget[p.Target]; !exists && !later[p.Target] {
				missing = append(missing, p.Target)
			}
		}
	}
	o.restate(m)
	o.miss(missing)
}

// read adds the memory of a target to m.
func (o *others) read(m memories, target string, value []byte) {
	if err := m.add(target, value); err != nil {
		o.log.Debug("the memory of another engine's target cannot be read, it is shown as before", "target", target, "error", err)
	}
}

// restate shows targets as they are in memories, those of them that are shown. It needs othersMu.
func (o *others) restate(m memories) {
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
	results := m.results()
	for target, probes := range byTarget {
		shown := m.shown[target]
		in := shown.instance(m.restarts[target].Shown(target))
		if in.ID == "" { // nothing restarts it
			in = latestInstance(target, probes)
		}
		of := engine.Restated{Memories: probes, Results: results, IsDecided: shown.Decided, State: shown.State, Since: shown.Since, Ejections: m.ejections, Penalty: m.penalties[target]}
		delete(o.missing, target)
		if err := o.engine.Admin().Restate(in, of); err != nil {
			o.log.Debug("what another engine has found out does not fit the configuration of this one", "target", target, "error", err)
		}
	}
}

// miss shows no verdicts of targets of which the store has no memory, and says which owners lack them: nobody has probed the
// others yet. It needs othersMu.
func (o *others) miss(targets []string) {
	if len(targets) == 0 {
		return
	}
	all := o.coordinator.Holdings()
	own := all[o.coordinator.Name()]
	for _, target := range targets {
		id, in := shard.Of(target), probe.Instance{Target: target}
		owner := o.coordinator.OwnerOf(target)
		if theirs, isKnown := all[owner]; isKnown && !theirs[id].HasSame(own[id]) {
			in.Reason, in.Detail = probe.ReasonNotConfigured, fmt.Sprintf("the engine %q owns the target and does not probe it: its configuration lacks it", owner)
		}
		o.missing[target] = true
		if st, _ := o.engine.Target(target); st.Instance.Phase == probe.Absent && st.Instance.Detail == in.Detail {
			continue
		}
		without := map[probe.ID]engine.Memory{}
		for p := range o.shown[id].probes() {
			if p.Target == target {
				without[p] = engine.Memory{}
			}
		}
		if err := o.engine.Admin().Restate(in, engine.Restated{Memories: without}); err != nil {
			o.log.Debug("a target that no engine probes cannot be shown as such", "target", target, "error", err)
		}
	}
}

// missAgain is miss for those that are missing, whose shards may have other owners now. It reports whether there are any.
func (o *others) missAgain() bool {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	maps.DeleteFunc(o.missing, func(target string, _ bool) bool { return o.shown[shard.Of(target)] == nil })
	o.miss(slices.Collect(maps.Keys(o.missing)))
	return len(o.missing) > 0
}

// latestInstance returns the instance of a target that has the latest begin among those that its probes know.
func latestInstance(target string, probes map[probe.ID]engine.Memory) probe.Instance {
	in := probe.Instance{Target: target, Phase: probe.Running}
	for _, m := range probes {
		if later := m.InstanceSince.Compare(in.Since); in.ID == "" || later > 0 || later == 0 && m.State.Instance > in.ID {
			in.ID, in.Since = m.State.Instance, m.InstanceSince
		}
	}
	return in
}

// keep shows the targets that are desired, except those that the fleet's own engine has, and no others. Only the
// memories of shards are loaded of which something else is shown than before.
func (o *others) keep(desired, applied map[shard.ID]*Targets) {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	if !o.isKnown {
		return
	}
	changed, outdated := map[shard.ID]*Targets{}, []shard.ID{}
	for id, targets := range desired {
		switch before := o.shown[id]; {
		case applied[id] != nil || before == targets:
		case before.isShownAs(targets):
			o.shown[id] = targets
		default:
			changed[id] = targets
			outdated = append(outdated, id)
		}
	}
	for id := range o.shown {
		if desired[id] == nil {
			changed[id] = nil
		}
	}
	o.change(changed)
	o.outdate(outdated)
}

// add shows targets that the fleet's own engine is about to lose, as it knows them until they are loaded: another
// engine may have owned them for some time. Without targets it does nothing.
func (o *others) add(id shard.ID, targets *Targets, m memories) {
	if targets == nil {
		return
	}
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	o.change(map[shard.ID]*Targets{id: targets})
	o.restate(m)
	o.outdate([]shard.ID{id})
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
			delete(o.loaded, id)
			delete(o.marked, id)
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

// isShownAs reports whether two have the same probes, as far as others shows them.
func (t *Targets) isShownAs(u *Targets) bool {
	return maps.EqualFunc(t.probes(), u.probes(), func(p, q probe.Probe) bool {
		return p.Rule == q.Rule && p.Target.Equal(q.Target) && p.HandlerName == q.HandlerName && p.Settings == q.Settings
	})
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
