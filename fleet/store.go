package fleet

import (
	"context"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// ledger is Run's record of the shards in the engine: their targets, and which memories the store has of these. It needs
// no lock, since only Run uses it.
type ledger struct {
	config  Config
	joints  *joints
	changes *changes
	sparse  *sparselog.Logger // for warnings that may repeat in each pass
	seed    maphash.Seed

	applied map[shard.ID]*Targets // in the engine
	stored  map[shard.ID]*stored  // by shard of applied
	unswept map[shard.ID]bool     // shards that may have records of acts for removed targets
}

func newLedger(c Config, j *joints, changes *changes, sparse *sparselog.Logger) *ledger {
	return &ledger{
		config: c, joints: j, changes: changes, sparse: sparse, seed: maphash.MakeSeed(),
		applied: map[shard.ID]*Targets{}, stored: map[shard.ID]*stored{},
		unswept: map[shard.ID]bool{},
	}
}

// stored is what is known about the memories of a shard in the store.
type stored struct {
	token    coord.Revision // the token with which they were loaded; under a different one, another engine may have stored others
	isMarked bool           // the shard is marked as loaded with that token, since this engine has stored what it made of the memories
	isOld    bool           // changes of the store were missed; it may have been restored from a snapshot
	restores int64          // restores of the store when the memories were loaded: see coord.Coordinator.Restores
	sums     map[string]sums
	at       time.Time // when this engine last stored a memory of the shard

	causes map[probe.ID]cause // as loaded, or to be stored
}

// sums are the possible hashes of a target's memory in the store, unless another engine has stored one meanwhile. There
// are several if it is unknown whether the latest memory was stored. The hash of no memory is 0.
type sums []uint64

// isStored reports whether the store has the memory with a hash.
func (s sums) isStored(sum uint64) bool { return len(s) == 1 && s[0] == sum || len(s) == 0 && sum == 0 }

// tried returns s after an attempt to store a memory with a hash has failed: the memory may have been stored
// nevertheless.
func (s sums) tried(sum uint64) sums {
	if len(s) == 0 {
		s = sums{0}
	}
	if slices.Contains(s, sum) {
		return s
	}
	return append(s, sum)
}

// note records a change that was made.
func (l *ledger) note(c *change) {
	for id, targets := range c.shards {
		if targets == nil {
			delete(l.applied, id)
			delete(l.stored, id)
			delete(l.unswept, id)
			l.changes.forget(id)
			continue
		}
		l.applied[id] = targets
		l.unswept[id] = true
		l.changes.noteShard(id)
	}
	for _, p := range c.Remove {
		if s := l.stored[shard.Of(p.Target)]; s != nil {
			delete(s.causes, p)
		}
	}
	maps.Copy(l.stored, c.stored)
}

// isOthers reports whether another engine has marked the shard as loaded since this engine loaded it.
func (s *stored) isOthers(loaded coord.Memories) bool { return loaded.Loaded > s.token }

// foreign stands for the hash of a memory that another engine has stored and that this engine has not resumed from.
const foreign = math.MaxUint64

// storedOf returns the record of memories that were loaded, with the causes of those that this engine makes of them.
// Normally this engine has resumed from all of them. The exception: this engine already had the shard with this token,
// and another engine has since marked the shard as loaded with a later token. Then memories that this engine did not
// store are foreign, and recall must resume from them at the next token.
func (l *ledger) storedOf(id shard.ID, token coord.Revision, loaded coord.Memories, m memories) *stored {
	known := l.stored[id]
	wasOthers := known != nil && known.token == token && known.isOthers(loaded)
	s := &stored{token: token, restores: l.config.Coordinator.Restores(), sums: make(map[string]sums, len(loaded.ByTarget)), causes: m.causes()}
	if known != nil {
		s.causes = maps.Clone(known.causes)
	}
	for target, value := range loaded.ByTarget {
		sum := l.sum(value)
		if wasOthers && !slices.Contains(known.sums[target], sum) {
			sum = foreign
		}
		s.sums[target] = sums{sum}
	}
	return s
}

// unverify notes that changes of the store were missed: all memories are loaded again, and those that the store lacks
// are stored again.
func (l *ledger) unverify() {
	for _, s := range l.stored {
		s.isOld = true
	}
}

// mustLoad reports whether the memories of a shard must be loaded.
func (l *ledger) mustLoad(id shard.ID, o coord.Ownership) bool {
	known := l.stored[id]
	return o.Token != 0 && (known == nil || known.isOld || known.token != o.Token)
}

// stillOwned returns those shards whose tokens have not changed. The others may have been loaded while this engine was
// not a member of the fleet; then it does not know whether their last owner was alive, or who it was.
func stillOwned(c *coord.Coordinator, ids []shard.ID, owned coord.Owned) []shard.ID {
	now, _ := c.Owned()
	return slices.DeleteFunc(slices.Clone(ids), func(id shard.ID) bool { return now[id].Token != owned[id].Token })
}

// sum returns the hash of a value. It is 0 only for no memory.
func (l *ledger) sum(value []byte) uint64 {
	if value == nil {
		return 0
	}
	return max(maphash.Bytes(l.seed, value), 1)
}

// recall returns the memories from which this engine resumes after it loaded them with a token. For targets that it has
// probed throughout, these are only the restarts that another engine has made meanwhile, without those that are earlier
// than this engine's own, since the store may have been restored from a snapshot. There are none if the token is
// unchanged, or if no other engine has loaded the shard since.
func (l *ledger) recall(id shard.ID, token coord.Revision, loaded coord.Memories) memories {
	known, m := l.stored[id], memories{}
	wasRestored := known != nil && known.restores != l.config.Coordinator.Restores()
	if known != nil && (known.token == token || !wasRestored && !known.isOthers(loaded)) {
		return m
	}
	for target, value := range loaded.ByTarget {
		if known != nil && slices.Contains(known.sums[target], l.sum(value)) {
			continue // this engine has stored it
		}
		if err := m.add(target, value); err != nil { // of another release
			l.config.Logger.Error("cannot read the memory of a target, which starts afresh", "target", target, "error", err)
		}
	}
	switch {
	case known != nil:
		l.mergeOwn(m, known, loaded, wasRestored)
	case loaded.IsContinued:
	case !loaded.IsRecent:
		m.resume(forget)
	default:
		m.resume(l.config.Resume)
	}
	return m
}

// mergeOwn reduces memories that another engine has stored to the parts that are newer than this engine's own, which has
// probed their targets throughout.
func (l *ledger) mergeOwn(m memories, known *stored, loaded coord.Memories, wasRestored bool) {
	for name := range known.sums {
		if _, exists := loaded.ByTarget[name]; !exists { // the group's trouble, of which another engine notified, has ended
			m.of(name).keepsTold = true
		}
	}
	for target, t := range m {
		t.Probes, t.Shown = nil, shown{}
		t.keepsTold, t.keepsToldOfGroup = t.keepsTold || wasRestored, wasRestored // receivers have been notified of more since
		own, isKnown := l.config.Restarts.Memory(target)
		if t.Restarts != nil && isKnown && isEarlier(*t.Restarts, own) {
			t.Restarts = nil
		}
	}
}

// isEarlier reports whether memory m of a target is earlier than memory than: that one has a later instance, or the same
// instance after its exit. Since the clocks of engines may differ, a memory that counts more instances is not earlier.
func isEarlier(m, than restart.Memory) bool {
	if m.Instance == than.Instance {
		return than.Exited && !m.Exited
	}
	return m.Started <= than.Started && m.Since.Before(than.Since)
}

// storeDue stores the changed memories of shards that were not stored within storeInterval.
func (l *ledger) storeDue(ctx context.Context, owned coord.Owned) (isDone bool) {
	return l.store(ctx, owned, nil, storeInterval)
}

// store stores the changed memories of some shards, or of all shards if some is nil, except shards that were stored
// within an interval. Without a valid lease they are skipped: all memories are compared after they were loaded again.
func (l *ledger) store(ctx context.Context, owned coord.Owned, some []shard.ID, interval time.Duration) (isDone bool) {
	due, later := map[shard.ID]names{}, map[shard.ID]names{}
	for id, targets := range l.changes.take(some) {
		switch s := l.stored[id]; {
		case s == nil || s.token == 0 || s.token != owned[id].Token:
		case time.Since(s.at) < interval:
			later[id] = targets
		default:
			due[id] = targets
		}
	}
	maps.Copy(later, l.storeShards(ctx, due))
	l.changes.putBack(later)
	return len(later) == 0
}

// storeShards stores those memories of targets that differ from the stored ones, and marks their shards as loaded. It
// returns the targets for which that failed.
func (l *ledger) storeShards(ctx context.Context, due map[shard.ID]names) (failed map[shard.ID]names) {
	var all []coord.Memory
	for id, targets := range due {
		all = append(all, l.differing(id, targets)...)
	}
	failed = map[shard.ID]names{}
	n, now := 0, time.Now()
	var last error
	for i, err := range l.config.Coordinator.Store(ctx, all...) {
		m := all[i]
		id := shard.Of(m.Target)
		s := l.stored[id]
		s.at = now
		switch {
		case err != nil:
			n, last = n+1, err
			s.sums[m.Target] = s.sums[m.Target].tried(l.sum(m.Value))
			if failed[id] == nil {
				failed[id] = names{}
			}
			failed[id][m.Target] = true
		case m.Value == nil:
			delete(s.sums, m.Target)
		default:
			s.sums[m.Target] = sums{l.sum(m.Value)}
		}
	}
	if n > 0 {
		l.sparse.Warn("memories of targets cannot be stored, trying again", "targets", n, "error", last)
	}
	l.markLoaded(ctx, due, failed)
	return failed
}

// markLoaded marks shards as loaded that are not marked yet, except those with a memory that could not be stored. It
// adds shards that could not be marked to failed.
func (l *ledger) markLoaded(ctx context.Context, shards, failed map[shard.ID]names) {
	tokens := map[shard.ID]coord.Revision{}
	for id := range shards {
		if _, hasFailed := failed[id]; !hasFailed && !l.stored[id].isMarked {
			tokens[id] = l.stored[id].token
		}
	}
	if len(tokens) == 0 {
		return
	}
	err := l.config.Coordinator.MarkLoaded(ctx, tokens)
	for id := range tokens {
		if l.stored[id].isMarked = err == nil; err != nil {
			failed[id] = names{}
		}
	}
	if err != nil {
		l.sparse.Warn("cannot mark taken-over shards as loaded, retrying: until then their targets are not restarted", "shards", len(tokens), "error", err)
	}
}

// differing returns those memories of a shard's targets that differ from the stored ones.
func (l *ledger) differing(id shard.ID, targets names) (all []coord.Memory) {
	s := l.stored[id]
	values, incomplete := l.snapshot(id, targets).encode()
	for target, err := range incomplete {
		l.sparse.Error("part of the memory of a target was not stored: the next owner starts afresh with it", "target", target, "error", err)
	}
	for target, value := range values {
		if !s.sums[target].isStored(l.sum(value)) {
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

// snapshot returns this engine's memories of some of the targets of a shard.
func (l *ledger) snapshot(in shard.ID, some names) memories {
	of, known := l.applied[in], map[probe.ID]cause{}
	if s := l.stored[in]; s != nil {
		known = s.causes
	}
	all := memories{}
	for id := range of.Probes {
		if !some.has(id.Target) {
			continue
		}
		m, ok := l.config.Engine.Snapshot(id)
		if !ok {
			continue
		}
		m.Fault = engine.Fault{} // the cause holds it in fewer bytes
		p := probeMemory{Kind: id.Kind, Name: id.Name, Memory: m}
		if p.Cause = l.cause(id, m, known[id]); p.Cause.isOf(m) {
			known[id] = p.Cause
		} else {
			p.Cause = cause{}
			delete(known, id)
		}
		st, _ := l.config.Engine.Status(id)
		if e := st.Ejection; e != nil && m.State.Verdict == probe.Passing {
			p.Ejection = ejectionOf(e.Since, e.Until, string(e.Reason), e.Detail)
		}
		if st.Blind && st.Result.Outcome == probe.Unknown {
			p.Blind = cause{reason: st.Result.Reason, detail: st.Result.Detail}
		}
		t := all.of(id.Target)
		t.Probes = append(t.Probes, p)
	}
	for target := range of.Units {
		if !some.has(target) {
			continue
		}
		t := all.of(target)
		if m, ok := l.config.Restarts.Memory(target); ok {
			if st, _ := l.config.Engine.Target(target); st.Instance.ID == m.Instance && st.Instance.Since.Equal(m.Since) {
				m.Since = st.Instance.Since // as this engine shows it; the wall clock may have been adjusted since the engine started
			}
			t.Restarts = &m
		}
		if p := l.config.Engine.Records().Penalty(target); p != (verdict.Penalty{}) {
			t.Penalty = &p
		}
		t.Notified, t.Shown = l.config.Notices.Notified(target), l.shown(target, of.unit(target), t.Restarts)
	}
	for _, group := range of.Groups {
		if some.has(group) {
			all.of(group).NotifiedOfGroup = l.config.Notices.NotifiedOfGroup(group)
		}
	}
	return all
}

// shown returns what other engines cannot derive from the memories of a target: why its instance is in its phase, and
// since when the target is in its state.
func (l *ledger) shown(target string, u restart.Unit, m *restart.Memory) (s shown) {
	st, exists := l.config.Engine.Target(target)
	if !exists {
		return s
	}
	if st.State.InTrouble() || st.State == probe.StateUnreachable || st.State == probe.StateDamped || st.State == probe.StatePaused {
		s.State, s.Since = st.State, st.Since.UTC()
	}
	s.Decided = st.Decided && !st.Ready && st.Instance.Phase == probe.Running
	if u.Driver != nil {
		s.Instance = shownInstance(st.Instance, follows(target, m))
	}
	return s
}

// cause returns why the probe of a memory fails: the known cause, or else the finding of its latest attempt. For a probe
// that passes, it returns the latest warning, if any.
func (l *ledger) cause(id probe.ID, m engine.Memory, known cause) cause {
	if m.State.Verdict == probe.Passing {
		return l.warning(id, m, known)
	}
	if known.isOf(m) {
		return known
	}
	st, _ := l.config.Engine.Status(id)
	if st.Verdict == probe.Passing || st.Instance != m.State.Instance || st.Fault.Outcome != probe.Failure {
		return cause{}
	}
	return cause{m.Since, st.Fault.Reason, st.Fault.Detail}
}

// renewCauses marks the memories of probes to be stored that now fail for another reason. A change of the detail alone
// does not count.
func (l *ledger) renewCauses() {
	for _, s := range l.stored {
		for id, known := range s.causes {
			st, exists := l.config.Engine.Status(id)
			if exists && st.Verdict != probe.Passing && st.Fault.Outcome == probe.Failure && st.Fault.Reason != known.reason {
				delete(s.causes, id)
				l.changes.note(id.Target)
			}
		}
	}
}

// warning returns the cause of a probe that passes: the latest warning, or how the votes of its vantages differ.
func (l *ledger) warning(id probe.ID, m engine.Memory, known cause) cause {
	st, _ := l.config.Engine.Status(id)
	if !st.Warned || st.Instance != m.State.Instance {
		return cause{}
	}
	if of, isJoint := l.joints.desired.joint(id); isJoint {
		if d, why := l.joints.decide(of); why == "" && d.instance == m.State.Instance {
			if r := d.result(of.rule); isGrayPass(r) {
				return cause{m.Since, r.Reason, r.Detail}
			}
		}
	}
	if st.Fault.Outcome == probe.Warning {
		return cause{m.Since, st.Fault.Reason, st.Fault.Detail}
	}
	return known
}

// release gives up the shards that are leaving, after it has stored their current memories. If an act finishes
// meanwhile, its shard waits for the next pass; no new act begins for it.
func (l *ledger) release(ctx context.Context, owned coord.Owned) (isDone bool) {
	isDone = true
	acting := l.config.Coordinator.Acts().Shards()
	due := map[shard.ID]names{}
	var leaving []shard.ID
	for id, o := range owned {
		if !o.Leaving {
			continue
		}
		isDone = false // the next pass removes the targets
		switch s := l.stored[id]; {
		case s == nil: // not probed yet
			leaving = append(leaving, id)
		case s.token == o.Token:
			due[id] = nil
		}
	}
	failed := l.storeShards(ctx, due)
	for id := range due {
		if _, hasFailed := failed[id]; !hasFailed && !acting[id] {
			leaving = append(leaving, id)
		}
	}
	if len(leaving) == 0 {
		return isDone
	}
	slices.Sort(leaving)
	_ = l.config.Coordinator.Release(ctx, leaving...)
	return false
}

// sweep deletes the records of acts for removed targets, from at most coord.MaxTransactions shards per pass, since that
// is not urgent.
func (l *ledger) sweep(ctx context.Context, owned coord.Owned) (isDone bool) {
	var some []shard.ID
	has := map[string]bool{}
	for id := range l.unswept {
		if owned[id].Token == 0 {
			continue
		}
		if len(some) == coord.MaxTransactions {
			break
		}
		some = append(some, id)
		for target := range l.applied[id].Units {
			has[target] = true
		}
		for p := range l.applied[id].Probes {
			has[p.Target] = true
		}
	}
	if len(some) == 0 {
		return true
	}
	if err := l.config.Coordinator.Acts().Forget(ctx, some, func(target string) bool { return has[target] }); err != nil {
		l.sparse.Warn("records of acts cannot be deleted, trying again", "shards", len(some), "error", err)
		return false
	}
	for _, id := range some {
		delete(l.unswept, id)
	}
	return len(some) < coord.MaxTransactions
}
