package engine

import (
	"iter"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/sonde-probe/sonde/probe"
)

// Status returns what is known about a probe, and whether there is such a probe.
// It never waits for the schedule.
func (e *Engine) Status(id probe.ID) (st Status, ok bool) {
	s := e.board.probe(id)
	if s == nil {
		return st, false
	}
	s.fill(&st, &e.clock)
	return st, true
}

func (b *board) probe(id probe.ID) *slot {
	b.RLock()
	s := b.find(id)
	b.RUnlock()
	return s
}

// find returns a probe, or nil. Whoever calls it holds the board's lock, or is
// the only one that writes to it.
func (b *board) find(id probe.ID) *slot {
	t := b.targets[id.Target]
	if t == nil {
		return nil
	}
	s, _ := t.slot(id)
	return s
}

// All yields the status of every probe, sorted by ID. It holds no lock while it
// yields, so that probes may come and go between two yields.
func (e *Engine) All() iter.Seq[Status] {
	return func(yield func(Status) bool) {
		for _, id := range e.board.ids() {
			if st, ok := e.Status(id); ok && !yield(st) {
				return
			}
		}
	}
}

func (b *board) ids() []probe.ID {
	b.RLock()
	ids := make([]probe.ID, 0, b.probes)
	for _, t := range b.targets {
		for _, s := range t.slots {
			ids = append(ids, s.id())
		}
	}
	b.RUnlock()
	slices.SortFunc(ids, probe.ID.Compare)
	return ids
}

// Target returns what the probes of a target add up to, and whether there is such
// a target: one that has probes, or an instance that was reported.
func (e *Engine) Target(name string) (TargetStatus, bool) {
	e.board.RLock()
	t := e.board.targets[name]
	var slots []*slot
	if t != nil {
		slots = t.slots
	}
	e.board.RUnlock()
	if t == nil {
		return TargetStatus{}, false
	}
	return t.status(slots, &e.clock), true
}

// Targets yields every target, sorted by name. It holds no lock while it yields.
func (e *Engine) Targets() iter.Seq[TargetStatus] {
	return func(yield func(TargetStatus) bool) {
		e.board.RLock()
		names := slices.AppendSeq(make([]string, 0, len(e.board.targets)), maps.Keys(e.board.targets))
		e.board.RUnlock()
		slices.Sort(names)
		for _, name := range names {
			if t, ok := e.Target(name); ok && !yield(t) {
				return
			}
		}
	}
}

// status adds the target's probes up.
func (t *target) status(slots []*slot, c *clock) TargetStatus {
	t.mu.Lock()
	st := TargetStatus{Target: t.name, Instance: t.life(c), Started: t.hasStarted(), Live: true}
	t.mu.Unlock()
	if len(slots) == 0 {
		st.Started = st.Instance.Phase == probe.Running
	}
	st.Ready = st.Started
	for _, s := range slots {
		st.Probes = append(st.Probes, Status{})
		p := &st.Probes[len(st.Probes)-1]
		s.fill(p, c)
		st.Address = s.place()
		passes := p.Verdict == probe.Passing && p.Instance == st.Instance.ID
		fails := p.Verdict == probe.Failing && p.Instance == st.Instance.ID
		switch s.kind {
		case probe.Readiness:
			st.Ready = st.Ready && passes
		default:
			st.Live = st.Live && !fails
		}
	}
	return st
}

func (s *slot) place() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// fill writes what is known about a probe to the zero Status.
func (s *slot) fill(st *Status, c *clock) {
	st.ID.Target, st.ID.Kind, st.ID.Name = s.target.name, s.kind, s.name
	s.mu.Lock()
	r := &s.record
	st.Rule, st.HandlerName = s.spec.rule, s.spec.handlerName
	st.Instance, st.Verdict, st.Last = r.state.Instance, r.state.Verdict, r.state.Last
	st.Run, st.Errors, st.OnHold, st.Rest = r.state.Run, r.state.Errors, r.state.OnHold, r.rest
	st.Changes, st.Attempts, st.Attempting = r.changes, r.attempts, r.flying
	if r.result != nil {
		st.Result = *r.result
	}
	since, next, resultAt := r.since, r.next, r.resultAt
	s.mu.Unlock()
	st.Since, st.Next, st.ResultAt = c.time(since), c.time(next), c.time(resultAt)
}

// Gauge is a probe's verdict, for a reader in a hurry: one atomic load, with no
// lock and no lookup. The zero Gauge is Undecided.
type Gauge struct{ verdict atomic.Uint32 }

// Verdict returns the published verdict.
func (g *Gauge) Verdict() probe.Verdict { return probe.Verdict(g.verdict.Load()) }

// Passing reports whether the published verdict is Passing.
func (g *Gauge) Passing() bool { return g.Verdict() == probe.Passing }

func (g *Gauge) set(v probe.Verdict) { g.verdict.Store(uint32(v)) }

// Watch returns the gauge of a probe, and whether there is such a probe. Once the
// probe is removed the gauge stays Undecided, also if a probe with that ID is
// added again: ask for its gauge then.
func (e *Engine) Watch(id probe.ID) (*Gauge, bool) {
	s := e.board.probe(id)
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gauge == nil {
		s.gauge = new(Gauge)
		if !s.removed {
			s.gauge.set(s.record.state.Verdict)
		}
	}
	return s.gauge, true
}

// SuccessTimes returns the durations of a probe's successful attempts. They are
// kept in the kubelet's compatibility only; else, and for a probe that is not
// there, it reports false.
func (e *Engine) SuccessTimes(id probe.ID) (Histogram, bool) {
	s := e.board.probe(id)
	if s == nil || s.took == nil {
		return Histogram{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.took.copy(), true
}
