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
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// others has the targets of the shards that this engine does not probe, as their owners have stored them.
type others struct {
	coordinator *coord.Coordinator
	log         *slog.Logger
	engine      *engine.Engine // never runs
	owner       *engine.Owner
	memories    *coord.Mirror[[]byte] // see coord.MemoryKeys
	wake        wake.Signal           // set when outdated has shards or missing has targets
	begun       func()                // called when isKnown is set

	othersMu   sync.Mutex // guards all below; held while engine changes
	shown      map[shard.ID]*Targets
	outdated   map[shard.ID]bool // shards whose targets must be updated from the store
	isKnown    bool              // the store has responded; no targets are shown before
	completeAt time.Time         // see Fleet.Heard
	missing    map[string]bool   // targets that are shown, but have no memory in the store
}

func newOthers(c *coord.Coordinator, log *slog.Logger, begun func()) *others {
	e := engine.New(engine.Config{NoIsolationCheck: true})
	o := &others{
		coordinator: c, log: log, engine: e, owner: e.Owner("fleet"), wake: wake.New(), begun: begun,
		shown: map[shard.ID]*Targets{}, outdated: map[shard.ID]bool{}, missing: map[string]bool{},
	}
	o.memories = coord.NewMirror(c, coord.Kind[[]byte]{
		Keys: coord.MemoryKeys, MaxValue: coord.MaxMemory, ReadTimeout: memoriesTimeout, Problem: "cannot watch the memories that other engines store, retrying",
		Parse:   func(_ string, e coord.Entry, _ []byte) []byte { return e.Value },
		Changed: o.changed,
	})
	return o
}

// memoriesTimeout bounds the time to read the memories of all targets: a million take about ten seconds.
const memoriesTimeout = time.Minute

// Others returns an engine that never runs. It has the targets that other engines of the fleet probe: their verdicts and
// causes of failure, their instances, since when they have them, and whether they are ejected or damped, as stored by
// their owners. It has no results of attempts that did not make a probe fail. While the store is unreachable, everything
// stays as it was.
func (f *Fleet) Others() *engine.Engine { return f.others.engine }

// Union returns the targets of Config.Engine and Others, that is, of all engines, as one source.
func (f *Fleet) Union() *engine.Union { return f.union }

// Heard returns when the store last responded to this engine while Others was up to date with it; zero if never. It does
// not advance while the memories of a shard have yet to be read, or while changes may be missed.
func (f *Fleet) Heard() time.Time {
	o := f.others
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	o.noteComplete()
	return o.completeAt
}

// Stale returns a function that reports whether a target is stale, or nil if no target is. A target is stale if Others
// shows it and its owner has not confirmed its verdicts for longer than the TTL, or this engine has not received them. A
// stale target stays as it was. Any goroutine may call Stale and the function.
func (f *Fleet) Stale() func(target string) bool {
	isOld, unconfirmed := time.Since(f.Heard()) > f.config.Coordinator.TTL(), f.config.Coordinator.Unconfirmed(f.others.marked())
	if !isOld && unconfirmed == nil {
		return nil
	}
	return func(target string) bool {
		return (isOld || unconfirmed[shard.Of(target)]) && f.union.IsOther(target)
	}
}

// marked returns the tokens with which the owners of the shown shards have marked them as loaded; 0 for none.
func (o *others) marked() map[shard.ID]coord.Revision {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	all := make(map[shard.ID]coord.Revision, len(o.shown))
	for id := range o.shown {
		all[id] = coord.ParseMark(o.memories.Get(id.String()).Value)
	}
	return all
}

// noteComplete sets completeAt if all shown targets are up to date with the store. It must be called before that
// changes. The caller must hold othersMu.
func (o *others) noteComplete() {
	if len(o.outdated) == 0 {
		o.completeAt = o.memories.Heard()
	}
}

// run keeps the targets up to date with the store until ctx is done.
func (o *others) run(ctx context.Context) {
	ctx, end := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end() // also after a panic
	watching.Go(func() { o.memories.Run(ctx) })
	for ctx.Err() == nil {
		for o.update() {
		}
		var again <-chan time.Time
		if o.missAgain() {
			again = time.After(storeInterval)
		}
		select {
		case <-o.wake:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// changed updates targets from memories that were just stored.
func (o *others) changed(all []coord.ItemChange[[]byte], isAll bool) {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	if isAll {
		o.outdate(slices.Collect(maps.Keys(o.shown)))
		if !o.isKnown {
			o.isKnown = true
			o.begun()
		}
		return
	}
	targets := map[string]bool{}
	for _, c := range all {
		if target, ok := coord.TargetOf(c.Name); ok && o.shown[shard.Of(target)] != nil {
			targets[target] = true
		}
	}
	o.show(targets)
}

// outdate marks shards to be updated from the store. The caller must hold othersMu.
func (o *others) outdate(ids []shard.ID) {
	o.noteComplete()
	for _, id := range ids {
		o.outdated[id] = true
	}
	o.wake.Set()
}

// update updates the targets of some outdated shards from the store. It returns false if there are none.
func (o *others) update() bool {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	targets := map[string]bool{}
	for id := range o.outdated {
		if len(targets) >= maxUpdate {
			break
		}
		delete(o.outdated, id)
		for p := range o.shown[id].probes() {
			targets[p.Target] = true
		}
	}
	o.show(targets)
	return len(targets) > 0
}

// maxUpdate is roughly the number of targets updated at a time; readers wait meanwhile.
const maxUpdate = 1000

// show updates targets from the store. It ignores targets without probes here. The caller must hold othersMu.
func (o *others) show(targets map[string]bool) {
	m, missing := memories{}, []string(nil)
	for target := range targets {
		if stored := o.memories.Get(coord.NameOf(target)); stored.Modified == 0 {
			missing = append(missing, target)
		} else {
			o.read(m, target, stored.Value)
		}
	}
	o.restate(m)
	if o.miss(missing); len(missing) > 0 {
		o.wake.Set()
	}
}

// read adds the memory of a target to m.
func (o *others) read(m memories, target string, value []byte) {
	if err := m.add(target, value); err != nil {
		o.log.Debug("the memory of another engine's target cannot be read, it is shown as before", "target", target, "error", err)
	}
}

// restate updates shown targets from memories. The caller must hold othersMu.
func (o *others) restate(m memories) {
	for target, t := range m {
		of := engine.Restated{
			Memories: map[probe.ID]engine.Memory{}, Results: map[probe.ID]probe.Result{}, Ejections: map[probe.ID]engine.Ejection{},
			State: t.Shown.State, Since: t.Shown.Since, IsDecided: t.Shown.Decided,
		}
		for _, p := range t.Probes {
			id := p.id(target)
			if _, exists := o.engine.Status(id); !exists || p.Memory.State.Instance == "" {
				continue // of another configuration, or not probed yet
			}
			of.Memories[id] = p.Memory
			if r, isKnown := p.result(); isKnown {
				of.Results[id] = r
			}
			if e := p.Ejection; e != nil {
				of.Ejections[id] = engine.Ejection{Probe: id, Since: e.Since, Until: e.Until, Reason: probe.Reason(e.Reason), Detail: e.Detail}
			}
		}
		if len(of.Memories) == 0 {
			continue
		}
		if t.Penalty != nil {
			of.Penalty = *t.Penalty
		}
		in := t.Shown.instance(follows(target, t.Restarts))
		if in.ID == "" { // no driver restarts it
			in = latestInstance(target, of.Memories)
		}
		delete(o.missing, target)
		if err := o.engine.Admin().Restate(in, of); err != nil {
			o.log.Debug("the stored state of another engine's target does not fit this engine's configuration", "target", target, "error", err)
		}
	}
}

// miss shows targets without a memory in the store as undecided. If an owner does not have a target in its
// configuration, miss names that owner; the other targets have not been probed yet. The caller must hold othersMu.
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
			in.Reason, in.Detail = probe.ReasonNotConfigured, fmt.Sprintf("the engine %q owns the target but does not probe it: the target is missing in its configuration", owner)
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

// missAgain repeats miss for the missing targets, whose shards may have new owners. It reports whether there are any.
func (o *others) missAgain() bool {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	maps.DeleteFunc(o.missing, func(target string, _ bool) bool { return o.shown[shard.Of(target)] == nil })
	o.miss(slices.Collect(maps.Keys(o.missing)))
	return len(o.missing) > 0
}

// latestInstance returns the instance of a target that began last among those that its probes know.
func latestInstance(target string, probes map[probe.ID]engine.Memory) probe.Instance {
	in := probe.Instance{Target: target, Phase: probe.Running}
	for _, m := range probes {
		if later := m.InstanceSince.Compare(in.Since); in.ID == "" || later > 0 || later == 0 && m.State.Instance > in.ID {
			in.ID, in.Since = m.State.Instance, m.InstanceSince
		}
	}
	return in
}

// keep shows exactly the desired targets that the fleet's own engine does not have. It updates only shards whose shown
// targets change.
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

// add shows targets that the fleet's own engine is about to lose, as the store has them: another engine may have owned
// them for some time. It does nothing if targets is nil.
func (o *others) add(id shard.ID, targets *Targets) {
	if targets == nil {
		return
	}
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	o.change(map[shard.ID]*Targets{id: targets})
	all := map[string]bool{}
	for p := range targets.probes() {
		all[p.Target] = true
	}
	o.show(all)
}

// remove stops showing the targets of a shard that the fleet's own engine has taken over.
func (o *others) remove(id shard.ID) {
	o.othersMu.Lock()
	defer o.othersMu.Unlock()
	o.change(map[shard.ID]*Targets{id: nil})
}

// change replaces the targets of shards; nil removes them. The caller must hold othersMu.
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
	if _, err := o.owner.Change(c); err != nil { // Plan has validated them
		o.log.Error("the targets of other engines cannot be shown", "error", err)
	}
	for target := range gone {
		o.engine.Report(probe.Instance{Target: target, Phase: probe.Absent}) // discards its instance
	}
}

// isShownAs reports whether t and u have the same probes, as far as others shows them.
func (t *Targets) isShownAs(u *Targets) bool {
	return maps.EqualFunc(t.probes(), u.probes(), func(p, q probe.Probe) bool {
		return p.Rule == q.Rule && p.Target.Equal(q.Target) && p.HandlerName == q.HandlerName && p.Settings == q.Settings
	})
}

// shownProbe returns a probe for display, which is never attempted.
func shownProbe(p probe.Probe) probe.Probe {
	p.Target.Static = false // its instance is the restated one
	p.HandlerName = cmp.Or(p.HandlerName, "other")
	p.Handler, p.Revision = notAttempted{}, ""
	return p
}

// notAttempted is the handler of probes of others.
type notAttempted struct{}

func (notAttempted) Probe(context.Context, probe.Target) probe.Result {
	return probe.Result{Outcome: probe.Unknown, Reason: probe.ReasonOwnership}
}
