package engine

import (
	"slices"

	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Apply replaces the engine's probes, except those of Owners, by those of set. If it returns an error, nothing has changed. The
// error joins the errors of the first ten invalid probes, sorted by ID, with the names of the fields. The engine does not retain
// set.
//
// An unchanged probe keeps its state, its offset and its attempt in flight. A probe keeps its state and its run of equal outcomes
// if its rule changes, or if the labels of its target change or ports are added. A probe whose handler or target changes starts a
// new run, and its published verdict remains until the next one (see verdict.Renew). If the target's address or ports have
// changed, however, nothing is known about the new endpoint, and the probe becomes undecided (see verdict.Relocate). The result
// of an attempt in flight of a replaced or removed probe is discarded.
//
// A probe is attempted once Report has been called for its target, or immediately if the target is Static.
//
// Probes may share a handler. A probe.StatefulHandler is not shared: each probe gets a handler of its own from ForProbe when the
// probe is added or replaced. A handler that is an io.Closer is closed when its last probe has been removed or replaced and its
// attempts have finished, and when Run ends. A StatefulHandler itself is not closed, only the handlers made from it.
func (e *Engine) Apply(set probe.Set) (Changes, error) {
	return e.Change(Change{Set: set, All: true})
}

// change makes the changes to an owner's probes that draw plans. If it returns an error, it has changed nothing.
func (e *Engine) change(own *owner, draw func(p *plan) error) (Changes, error) {
	p, err := e.plan(own, draw)
	if err != nil {
		return Changes{}, err
	}
	return p.Commit(), nil
}

// plan locks applyMu until the plan is committed or discarded, unless plan returns an error.
func (e *Engine) plan(own *owner, draw func(p *plan) error) (*Planned, error) {
	e.applyMu.Lock()
	p := &Planned{plan: plan{engine: e, owner: own}}
	isDrawn := false
	defer func() {
		if !isDrawn { // also after a handler panicked
			p.Discard()
		}
	}()
	if err := p.plan.draw(draw); err != nil {
		return nil, err
	}
	isDrawn = true
	return p, nil
}

// applyChunk is the number of changes after which the lock is released for other goroutines.
const applyChunk = 1024

// chunkOf returns how many changes to make under one lock: applyChunk, plus the remaining changes of the last target.
func chunkOf(changes []change) int {
	n := min(len(changes), applyChunk)
	for n < len(changes) && changes[n].id.Target == changes[n-1].id.Target {
		n++
	}
	return n
}

// apply makes the given changes, which are sorted by target, and reconciles each target after all its probes have changed. It
// also changes the settings of targets, unless targets is nil. It locks mu.
func (sc *scheduler) apply(changes []change, targets *targetSettings) {
	sc.mu.Lock()
	defer sc.unlock()
	if targets != nil && targets.dependencies != nil {
		sc.summaries.setDependencies(*targets.dependencies)
	}
	switch {
	case targets == nil:
	case targets.dampings != nil:
		sc.summaries.setDampings(targets.dampings, targets.penalties)
	default:
		sc.summaries.restorePenalties(targets.penalties)
	}
	for i, c := range changes {
		switch c.action {
		case ProbeAdded:
			c.slot = sc.add(c)
		case ProbeRemoved:
			c.slot.target.keepSummary(sc.registry.probesOf(c.slot.target))
			sc.remove(c.slot)
		case ProbeUpdated:
			if sc.adjust(c.slot, c.spec); c.labels {
				sc.subscribers.notifyProbe(c.id, probeChanged)
			}
		case ProbeReplaced:
			sc.replace(c)
		}
		if i+1 == len(changes) || changes[i+1].id.Target != c.id.Target {
			c.slot.target.dropSummary(sc.registry.probesOf(c.slot.target))
			sc.reportStatic(c.slot.target)
			sc.markStarted(c.slot.target)
			sc.reconcileAll(c.slot.target)
			sc.summaries.updateStateOf(c.slot.target, false)
			if len(sc.subscribers.targets) > 0 && sc.registry.has(c.slot.target) { // its address or labels may have changed
				sc.subscribers.notifyTarget(c.id.Target, probeChanged)
			}
		}
	}
	sc.publishIsolation(sc.clock.Now())
	sc.wakeIfEarlier()
}

func (sc *scheduler) add(c change) *slot {
	s := &slot{
		key: sc.timetable.schedule.Add(schedule.TimesOf(c.id, c.spec.rule.Period), c.spec.stepper != nil), kind: c.id.Kind, name: c.id.Name,
		address: c.address, waitReason: verdict.NoInstance,
	}
	sc.peers.setHost(s, c.host)
	s.spec.Store(c.spec)
	s.keepDurations(c.spec.rule.Compatibility)
	if c.memory != nil {
		s.restore(c.memory, sc.clock)
		sc.isolation.restore(s, c.host)
	}
	if int(s.key) == len(sc.slots) {
		sc.slots = append(sc.slots, nil)
	}
	sc.slots[s.key] = s
	if sc.registry.add(s, c.id, c.memory, sc.clock) {
		sc.subscribers.notifyTarget(c.id.Target, probeAdded)
	}
	sc.subscribers.notifyProbe(c.id, probeAdded)
	return s
}

// reportStatic reports the instance of a target with a static probe, unless a driver has reported one. If a Memory says that the
// instance has run since an earlier engine, its Since is kept.
func (sc *scheduler) reportStatic(t *target) {
	if t.isReported() || !slices.ContainsFunc(sc.registry.probesOf(t), func(s *slot) bool { return s.spec.Load().target.Static }) {
		return
	}
	since := sc.clock.Now()
	if in := t.current(); in.id == probe.StaticID && in.since != 0 {
		since = min(since, in.since)
	}
	sc.setInstance(t, probe.Instance{Target: t.name, ID: probe.StaticID, Phase: probe.Running, Since: sc.clock.Time(since)})
}

// keepSummary records whether a target that loses a probe has started and is ready. If the target loses all its probes, the
// recorded values apply until its instance is reported again.
func (t *target) keepSummary(slots []*slot) {
	before := t.instance.Load()
	if before == nil || before.kept {
		return
	}
	in := *before
	in.kept, in.ready = true, t.isReady(slots)
	t.instance.Store(&in)
}

// dropSummary undoes keepSummary if the target still has probes.
func (t *target) dropSummary(slots []*slot) {
	if in := t.current(); in.kept && len(slots) > 0 {
		next := *in
		next.kept, next.ready = false, false
		t.instance.Store(&next)
	}
}

// forgetDecided discards the knowledge whether a target is ready, since its endpoint has changed.
func (t *target) forgetDecided() {
	if in := t.current(); in.decided {
		next := *in
		next.decided = false
		t.instance.Store(&next)
	}
}

func (sc *scheduler) remove(s *slot) {
	sc.drop(s)
	sc.peers.remove(s)
	sc.summaries.ejections.ends.Remove(s.key)
	sc.timetable.schedule.Remove(s.key)
	sc.slots[s.key] = nil
	if sc.registry.remove(s) {
		sc.subscribers.notifyTarget(s.target.name, probeRemoved)
		sc.summaries.updateDependents(s.target.name)
	}
	s.mu.Lock()
	sc.outcomes.size -= s.outcomesSize()
	s.removed, s.next = true, 0
	if s.rare != nil {
		s.rare.gauge.set(probe.Undecided)
	}
	s.mu.Unlock()
	sc.subscribers.notifyProbe(s.id(), probeRemoved)
}

// adjust replaces the rule of a probe, but not its handler or endpoint.
func (sc *scheduler) adjust(s *slot, sp *spec) {
	before := sc.timetable.schedule.Times(s.key).Period
	s.mu.Lock()
	if s.spec.Load().proof != sp.proof {
		s.marks.unprove()
	}
	s.spec.Store(sp)
	s.mu.Unlock()
	s.keepDurations(sp.rule.Compatibility)
	sc.timetable.configure(s, sp)
	times, now := sc.timetable.schedule.Times(s.key), sc.clock.Now()
	if s.inflight != nil {
		s.inflight.next = times.From(now)
	} else if times.Period != before && sc.timetable.schedule.IsDue(s.key) && s.currentWaitReason() == verdict.NotWaiting {
		sc.timetable.at(s, times.From(now))
	}
}

// replace replaces the handler or target of a probe.
func (sc *scheduler) replace(c change) {
	s := c.slot
	sc.drop(s)
	sc.summaries.readmit(s, never, sc.clock.Now())
	s.keepDurations(c.spec.rule.Compatibility)
	sc.timetable.configure(s, c.spec)
	sc.timetable.schedule.Forget(s.key)
	if c.moved {
		sc.isolation.forget(s)
		s.target.forgetDecided()
	}
	s.mu.Lock()
	s.address = c.address
	s.spec.Store(c.spec)
	before := s.state
	if s.state = verdict.Renew(s.kind, before); c.moved {
		s.state = verdict.Relocate(s.kind, before)
	}
	s.result, s.resultAt, s.waitReason = nil, 0, verdict.NoInstance
	s.forgetFault()
	s.marks.unprove()
	s.setWarnings(verdict.Warnings{})
	changed := s.state.Verdict != before.Verdict
	if changed {
		s.publish(sc.clock.Now())
	}
	s.mu.Unlock()
	if s.rare != nil {
		s.rare.level, s.rare.restarts, s.rare.traffic = nil, nil, nil
	}
	sc.outcomes.forget(s)
	sc.peers.setHost(s, c.host)
	if changed || c.labels {
		sc.subscribers.notifyProbe(c.id, probeChanged)
	} else {
		sc.subscribers.notifyMemory(c.id)
	}
	sc.timetable.idle(s)
}
