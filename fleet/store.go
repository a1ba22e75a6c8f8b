package fleet

import (
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

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

// storedOf notes what was loaded.
func (f *Fleet) storedOf(token coord.Revision, l coord.Memories) *stored {
	s := &stored{token: token, sums: make(map[string]sums, len(l.ByTarget))}
	for target, value := range l.ByTarget {
		s.sums[target] = sums{f.sum(value)}
	}
	return s
}

// verify looks whether the store still has what this engine has stored, after changes of the store were missed. What it
// lacks, since it was restored from a snapshot, is stored again. What was read when another engine may have had a shard is
// not looked at: that one has stored it, and take loads it.
func (f *Fleet) verify(ctx context.Context, owned coord.Owned) (isDone bool) {
	var some []shard.ID
	for id := range f.unverified {
		if token := owned[id].Token; token != 0 && token == f.stored[id].token {
			some = append(some, id)
		}
	}
	slices.Sort(some)
	for batch := range slices.Chunk(some, coord.MaxTransactions) {
		loaded, err := f.config.Coordinator.Load(ctx, batch...)
		if err != nil {
			f.sparse.Warn("memories of shards cannot be read again, trying again", "shards", len(some), "error", err)
			return false
		}
		if !f.config.Coordinator.Allowed() {
			return false
		}
		batch = f.stillOwned(batch, owned)
		f.desiredMu.Lock()
		for _, id := range batch {
			delete(f.unverified, id)
			if f.stored[id].lacks(loaded[id], f.sum) {
				f.stored[id].isMarked, f.changed[id] = false, nil
			}
		}
		f.desiredMu.Unlock()
	}
	return true
}

// lacks reports whether a store that has l lacks something that was stored, and notes what it has instead.
func (s *stored) lacks(l coord.Memories, sum func([]byte) uint64) (lacks bool) {
	for target, value := range l.ByTarget {
		if now := sum(value); !slices.Contains(s.sums[target], now) {
			s.sums[target], lacks = s.sums[target].tried(now), true
		}
	}
	for target, known := range s.sums {
		if _, exists := l.ByTarget[target]; !exists && !slices.Contains(known, 0) {
			s.sums[target], lacks = known.tried(0), true
		}
	}
	return lacks
}

// sum returns a hash, which is 0 for no memory only.
func (f *Fleet) sum(value []byte) uint64 {
	if value == nil {
		return 0
	}
	return max(maphash.Bytes(f.seed, value), 1)
}

// recall returns the memories with which this engine goes on from what was loaded. Of targets that it has
// probed all along these are the restarts that another engine has made meanwhile, but none from before those that this
// engine knows: the store may have been restored from a snapshot.
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
	if known != nil { // what another engine has told has ended
		for name := range known.sums {
			if _, exists := l.ByTarget[name]; !exists {
				m.toldOfGroups[name] = nil
			}
		}
	}
	switch {
	case known != nil:
		clear(m.probes)
		maps.DeleteFunc(m.restarts, func(target string, loaded restart.Memory) bool {
			own, isKnown := f.config.Restarts.Memory(target)
			return isKnown && isEarlier(loaded, own)
		})
	case l.IsContinued:
	case !l.IsRecent:
		m.resume(Forget)
	default:
		m.resume(f.config.Resume)
	}
	return m
}

// isEarlier reports whether a memory of a target is from before another one: that one knows a later instance, or that the
// same one has exited. The clocks of engines may differ: a memory that counts more instances is not earlier.
func isEarlier(m, than restart.Memory) bool {
	if m.Instance == than.Instance {
		return than.Exited && !m.Exited
	}
	return m.Started <= than.Started && m.Since.Before(than.Since)
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

// storeDue stores what is due.
func (f *Fleet) storeDue(ctx context.Context, owned coord.Owned) (isDone bool) {
	return f.store(ctx, owned, nil, storeInterval)
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
		f.sparse.Warn("memories of targets cannot be stored, trying again", "targets", n, "error", last)
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
		f.sparse.Warn("shards that are taken over cannot be marked, trying again: until then this engine restarts none of their targets", "shards", len(tokens), "error", err)
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
		if st, _ := f.config.Engine.Status(id); st.Ejection != nil && m.State.Verdict == probe.Passing {
			all.ejections[id] = *st.Ejection
		}
	}
	for target := range of.Units {
		if some.has(target) {
			if m, ok := f.config.Restarts.Memory(target); ok {
				all.restarts[target] = m
			}
			if p := f.config.Engine.Records().Penalty(target); p != (verdict.Penalty{}) {
				all.penalties[target] = p
			}
			if told := f.config.Notices.Told(target); told != nil {
				all.told[target] = told
			}
		}
	}
	for _, group := range of.Groups {
		if some.has(group) {
			all.toldOfGroups[group] = f.config.Notices.ToldOfGroup(group)
		}
	}
	return all
}

// cause returns why a probe with a memory fails: what is known already, or else what its latest attempt has found. Of one that
// passes it returns the warning, if the latest attempt that passed was one.
func (f *Fleet) cause(id probe.ID, m engine.Memory, known cause) cause {
	if m.State.Verdict == probe.Passing {
		return f.warning(id, m, known)
	}
	if known.isOf(m) {
		return known
	}
	st, _ := f.config.Engine.Status(id)
	if st.Verdict != probe.Failing || st.Instance != m.State.Instance || st.Result.Outcome != probe.Failure {
		return cause{}
	}
	return cause{m.Since, st.Result.Reason, st.Result.Detail}
}

// warning is cause for a probe that passes. Votes that differ are a warning before the engine has looked at them. Other warnings
// are those of readiness probes, which change how gateways use the target: no others are stored when they begin and end.
func (f *Fleet) warning(id probe.ID, m engine.Memory, known cause) cause {
	if d, ok := f.joints.get(id); ok && d.instance == m.State.Instance {
		if !d.isGrayPass() {
			return cause{}
		}
		r := d.result(quorum.Rule{})
		return cause{m.Since, r.Reason, r.Detail}
	}
	st, _ := f.config.Engine.Status(id)
	switch {
	case id.Kind != probe.Readiness, !st.Warned, st.Instance != m.State.Instance:
		return cause{}
	case st.Result.Outcome == probe.Warning:
		return cause{m.Since, st.Result.Reason, st.Result.Detail}
	}
	return known
}

// release gives up the shards that are leaving, with the memories that they have now. An act that is being done now may
// end while they are stored: its shard waits for the next pass, as no other act begins for it.
func (f *Fleet) release(ctx context.Context, owned coord.Owned) (isDone bool) {
	isDone = true
	acting := f.config.Coordinator.Acts().Shards()
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
		if _, hasFailed := failed[id]; !hasFailed && !acting[id] {
			leaving = append(leaving, id)
		}
	}
	if len(leaving) == 0 {
		return isDone
	}
	slices.Sort(leaving)
	_ = f.config.Coordinator.Release(ctx, leaving...)
	return false
}

// sweep deletes the records of acts for targets that are gone from some of the shards that may have any: that is not urgent.
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
	if err := f.config.Coordinator.Acts().Forget(ctx, some, func(target string) bool { return has[target] }); err != nil {
		f.sparse.Warn("records of acts cannot be deleted, trying again", "shards", len(some), "error", err)
		return false
	}
	for _, id := range some {
		delete(f.unswept, id)
	}
	return len(some) < coord.MaxTransactions
}
