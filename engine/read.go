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
func (e *Engine) Status(id probe.ID) (Status, bool) {
	s := e.board.probe(id)
	if s == nil {
		return Status{}, false
	}
	return s.status(e.clock), true
}

func (b *board) probe(id probe.ID) *slot {
	b.RLock()
	defer b.RUnlock()
	return b.probes[id]
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
	ids := slices.AppendSeq(make([]probe.ID, 0, len(b.probes)), maps.Keys(b.probes))
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
	return t.status(slots, e.clock), true
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
func (t *target) status(slots []*slot, c clock) TargetStatus {
	t.mu.Lock()
	st := TargetStatus{Target: t.name, Instance: t.instance, Started: t.hasStarted(), Live: true}
	t.mu.Unlock()
	if len(slots) == 0 {
		st.Started = st.Instance.Phase == probe.Running
	}
	st.Ready = st.Started
	for _, s := range slots {
		p := s.status(c)
		st.Probes = append(st.Probes, p)
		st.Address = s.address()
		passes := p.Verdict == probe.Passing && p.Instance == st.Instance.ID
		fails := p.Verdict == probe.Failing && p.Instance == st.Instance.ID
		switch s.id.Kind {
		case probe.Readiness:
			st.Ready = st.Ready && passes
		default:
			st.Live = st.Live && !fails
		}
	}
	return st
}

func (s *slot) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.probe.Target.Address
}

func (s *slot) status(c clock) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.record
	st := Status{
		ID: s.id, Rule: s.probe.Rule, HandlerName: s.probe.HandlerName,
		Instance: r.state.Instance, Verdict: r.state.Verdict, Since: r.since, Changes: r.changes,
		Last: r.state.Last, Run: r.state.Run, Errors: r.state.Errors, OnHold: r.state.OnHold, Rest: r.rest,
		Result: r.result, ResultAt: r.resultAt, Attempts: r.attempts, Attempting: r.flying,
	}
	if r.next != 0 {
		st.Next = c.time(r.next)
	}
	return st
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
