package engine

import (
	"iter"
	"sync/atomic"

	"github.com/sonde-probe/sonde/probe"
)

// Status returns what is known about a probe, and whether there is such a probe.
// It never waits for the scheduler.
func (e *Engine) Status(id probe.ID) (st Status, ok bool) {
	s := e.registry.probe(id)
	if s == nil {
		return st, false
	}
	s.fill(&st, &e.scheduler.clock)
	return st, true
}

// All yields the status of every probe, sorted by ID. It holds no lock while it
// yields, so that probes may be added and removed between two yields.
func (e *Engine) All() iter.Seq[Status] {
	return func(yield func(Status) bool) {
		for _, id := range e.registry.ids() {
			if st, ok := e.Status(id); ok && !yield(st) {
				return
			}
		}
	}
}

// Target returns a summary of a target's probes, and whether there is such a target:
// one that has probes, or an instance that was reported.
func (e *Engine) Target(name string) (TargetStatus, bool) {
	t, slots := e.registry.target(name)
	if t == nil {
		return TargetStatus{}, false
	}
	return t.status(slots, &e.scheduler.clock), true
}

// Targets yields every target, sorted by name. It holds no lock while it yields.
func (e *Engine) Targets() iter.Seq[TargetStatus] {
	return func(yield func(TargetStatus) bool) {
		for _, name := range e.registry.names() {
			if t, ok := e.Target(name); ok && !yield(t) {
				return
			}
		}
	}
}

// status summarizes the target's probes.
func (t *target) status(slots []*slot, c *clock) TargetStatus {
	in := t.current()
	st := TargetStatus{Target: t.name, Instance: t.public(in, c), Started: in.hasStarted(), Live: true}
	if len(slots) == 0 {
		st.Started = in.phase == probe.Running
	}
	st.Ready = st.Started
	for _, s := range slots {
		st.Probes = append(st.Probes, Status{})
		p := &st.Probes[len(st.Probes)-1]
		s.fill(p, c)
		st.Address = s.currentAddress()
		passes := p.Verdict == probe.Passing && p.Instance == in.id
		fails := p.Verdict == probe.Failing && p.Instance == in.id
		if s.kind == probe.Readiness {
			st.Ready = st.Ready && passes
		} else {
			st.Live = st.Live && !fails
		}
	}
	return st
}

// Gauge is a probe's verdict for readers that must be fast, such as a proxy that asks
// for each request: one atomic load, with no lock and no lookup. The zero Gauge is
// Undecided.
type Gauge struct{ verdict atomic.Uint32 }

// Verdict returns the published verdict.
func (g *Gauge) Verdict() probe.Verdict { return probe.Verdict(g.verdict.Load()) }

// Passing reports whether the published verdict is Passing.
func (g *Gauge) Passing() bool { return g.Verdict() == probe.Passing }

func (g *Gauge) set(v probe.Verdict) { g.verdict.Store(uint32(v)) }

// Watch returns the gauge of a probe, and whether there is such a probe. Once the
// probe is removed the gauge stays Undecided, even if a probe with that ID is added
// again: call Watch again then.
func (e *Engine) Watch(id probe.ID) (*Gauge, bool) {
	s := e.registry.probe(id)
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &s.makeRare().gauge, true
}

// SuccessDurations returns the durations of a probe's successful attempts. It returns
// false if there is no such probe, or if its rule does not have the kubelet's
// compatibility: only then durations are kept for each probe.
func (e *Engine) SuccessDurations(id probe.ID) (Histogram, bool) {
	s := e.registry.probe(id)
	if s == nil {
		return Histogram{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rare == nil || s.rare.took == nil {
		return Histogram{}, false
	}
	return s.rare.took.copy(), true
}
