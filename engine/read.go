package engine

import (
	"context"
	"iter"
	"slices"
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
		for t := range e.registry.walk(context.Background(), "") {
			for _, s := range t.slots {
				if st, ok := e.Status(s.id()); ok && !yield(st) {
					return
				}
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
	var st TargetStatus
	t.fill(&st, slots, &e.scheduler.clock)
	return st, true
}

// Targets yields every target, sorted by name. It holds no lock while it yields.
func (e *Engine) Targets() iter.Seq[TargetStatus] { return e.Select(context.Background(), Filter{}) }

// Filter selects targets. The zero Filter selects all.
type Filter struct {
	// After selects the targets whose names sort after it. Default: from the first.
	After string

	// Match selects the targets that have a probe of a kind and with a verdict for which
	// it returns true. Default: all targets, also those without probes.
	Match func(probe.Kind, probe.Verdict) bool
}

// Select yields the targets of f, sorted by name, until ctx is done. Its cost is that of
// the targets that it passes, and not of all there are: to list many, end after some, and
// go on with their last name as Filter.After. It holds no lock while it yields or calls
// Filter.Match.
func (e *Engine) Select(ctx context.Context, f Filter) iter.Seq[TargetStatus] {
	return func(yield func(TargetStatus) bool) {
		for t := range e.registry.walk(ctx, f.After) {
			if !f.matches(t.slots) {
				continue
			}
			if st, ok := e.Target(t.target.name); ok && !yield(st) {
				return
			}
		}
	}
}

// Count returns how many targets f selects, or fewer if ctx is done before it has counted
// them. Without Filter.Match it does not visit them.
func (e *Engine) Count(ctx context.Context, f Filter) int {
	if f.Match == nil {
		return e.registry.countAfter(f.After)
	}
	n := 0
	for t := range e.registry.walk(ctx, f.After) {
		if f.matches(t.slots) {
			n++
		}
	}
	return n
}

func (f *Filter) matches(slots []*slot) bool {
	return f.Match == nil || slices.ContainsFunc(slots, func(s *slot) bool { return f.Match(s.kind, s.currentVerdict()) })
}

// Summary counts the targets and probes by their state, until ctx is done. It visits them
// all, but allocates no memory for each.
func (e *Engine) Summary(ctx context.Context) Summary {
	sum := Summary{Verdicts: map[KindVerdict]int{}}
	var st TargetStatus
	for t := range e.registry.walk(ctx, "") {
		t.target.fill(&st, t.slots, &e.scheduler.clock)
		sum.add(&st)
	}
	return sum
}

// fill summarizes the target's probes. It reuses the memory of st.Probes.
func (t *target) fill(st *TargetStatus, slots []*slot, c *clock) {
	in := t.current()
	*st = TargetStatus{Target: t.name, Instance: t.public(in, c), Started: in.hasStarted(), Live: true, Probes: st.Probes[:0]}
	st.Ready = st.Started
	if len(slots) == 0 {
		st.Started = in.hasStartedBare()
		st.Ready = st.Started && (in.ready || !in.kept) && !in.terminating
	}
	st.Probes = slices.Grow(st.Probes, len(slots))
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
}

// isReady reports whether the target has started and all its readiness probes pass.
func (t *target) isReady(slots []*slot) bool {
	in := t.current()
	for _, s := range slots {
		if s.kind == probe.Readiness && !s.hasPassed(in.id) {
			return false
		}
	}
	return in.hasStarted()
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
