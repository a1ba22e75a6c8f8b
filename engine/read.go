package engine

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// Status returns the status of a probe, and whether the probe exists. It never waits for the scheduler.
func (e *Engine) Status(id probe.ID) (st Status, ok bool) {
	s := e.registry.probe(id)
	if s == nil {
		return st, false
	}
	s.fill(&st, e.scheduler.clock)
	return st, true
}

// All yields the status of every probe, sorted by ID. It holds no lock while it yields, so probes may be added and removed during
// the iteration.
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

// Target returns the status of a target, and whether the target exists: it has probes, or its instance was reported.
func (e *Engine) Target(name string) (TargetStatus, bool) {
	t, slots := e.registry.target(name)
	if t == nil {
		return TargetStatus{}, false
	}
	var st TargetStatus
	t.fill(&st, slots, e.scheduler.clock)
	st.Labels = e.registry.labelsOf(t, slots)
	st.Damping, st.Pause = e.registry.dampingOf(name).public(e.scheduler.clock), e.registry.pauseOf(name)
	st.fold(e.registry.troubledDependency(t))
	st.Cause.addShare(st.Probes, e.scheduler.clock)
	if since := e.registry.stateSince(t); since != 0 && dates(st.State) {
		st.Since = e.scheduler.clock.Time(since)
	}
	return st, true
}

// fold applies the conditions of a target that do not follow from its instance and its probes: dependencies, damping and pause.
// on is the dependency that explains the target's failures, or "".
func (st *TargetStatus) fold(on string) {
	if verdict.OfDependent(st.State) != st.State {
		st.TroubledDependency = on
	}
	conditions := verdict.Conditions{Explained: on != "", Damped: st.Damping != nil && !st.Damping.Until.IsZero(), Paused: st.Pause != nil}
	st.State, st.Gateway = conditions.Fold(st.Instance.Phase, st.State, st.Gateway)
}

// Filter selects targets. The zero Filter selects all.
type Filter struct {
	// After selects the targets whose names sort after it. Default: all targets.
	After string

	// Match selects the targets that have a probe with a kind and verdict for which it returns true. Default: all targets, even
	// those without probes.
	Match func(probe.Kind, probe.Verdict) bool

	// Selectors select the targets that match all of them. Default: all targets.
	Selectors []probe.Selector

	// State selects the targets in a state for which it returns true. If these are all states of trouble, no other targets are
	// visited. Default: all states.
	State func(probe.TargetState) bool
}

// Select yields the targets that f selects, sorted by name, until ctx is done. The cost is proportional to the targets visited,
// not to all targets: to list many targets in pages, stop after some, and continue with the last name as Filter.After. It holds
// no lock while it yields or calls Filter.Match.
func (e *Engine) Select(ctx context.Context, f Filter) iter.Seq[TargetStatus] {
	return func(yield func(TargetStatus) bool) {
		for t := range e.registry.walkIndex(ctx, f.index(e.registry), f.After) {
			if !f.matches(e.registry, t) {
				continue
			}
			if st, ok := e.Target(t.target.name); ok && !yield(st) {
				return
			}
		}
	}
}

// Count returns how many targets f selects, or fewer if ctx is done before it has counted all of them. It visits no targets if f
// has neither Match nor Selectors, and not both State and After.
func (e *Engine) Count(ctx context.Context, f Filter) (n int) {
	switch {
	case len(f.Selectors) > 0:
	case f.Match == nil && f.State == nil:
		return e.registry.countAfter(f.After)
	case f.Match == nil && f.After == "":
		for state, targets := range e.registry.stateCounts() {
			if f.State(probe.TargetState(state)) {
				n += targets
			}
		}
		return n
	}
	for t := range e.registry.walkIndex(ctx, f.index(e.registry), f.After) {
		if f.matches(e.registry, t) {
			n++
		}
	}
	return n
}

// States returns the number of targets in each state. It visits no targets.
func (e *Engine) States() TargetStates { return e.registry.stateCounts() }

// index returns an index that contains all targets that f may select.
func (f *Filter) index(r *registry) *index {
	for s := range probe.TargetState(probe.TargetStates) {
		if f.State == nil || f.State(s) && !s.InTrouble() {
			return &r.byName
		}
	}
	return &r.states.trouble
}

func (f *Filter) matches(r *registry, t listed) bool {
	if f.State != nil && !f.State(t.target.currentState()) {
		return false
	}
	if len(f.Selectors) > 0 {
		labels := r.labelsOf(t.target, t.slots)
		for i := range f.Selectors {
			if !f.Selectors[i].Matches(t.target.name, labels) {
				return false
			}
		}
	}
	return f.Match == nil || slices.ContainsFunc(t.slots, func(s *slot) bool { return f.Match(s.kind, s.currentVerdict()) })
}

// Summary counts the targets and probes by state, until ctx is done. It visits all of them, but allocates no memory per target.
func (e *Engine) Summary(ctx context.Context) Summary {
	sum := Summary{Verdicts: map[KindVerdict]int{}, States: e.States()}
	var st TargetStatus
	for t := range e.registry.walk(ctx, "") {
		t.target.fill(&st, t.slots, e.scheduler.clock)
		sum.add(&st)
	}
	return sum
}

// fill summarizes the target's probes, except for its labels. It reuses the memory of st.Probes.
func (t *target) fill(st *TargetStatus, slots []*slot, c *clock.Clock) {
	in := t.current()
	*st = TargetStatus{Target: t.name, Instance: t.public(in, c), Started: in.hasStarted(), Live: true, Probes: st.Probes[:0]}
	st.Ready = st.Started
	var probed bool
	st.State, probed = in.state(len(slots) > 0)
	worst, warned := cause{state: probe.StateReady}, false
	if len(slots) == 0 {
		st.Started = in.hasStartedBare()
		st.Ready = t.isReady(nil)
	}
	st.Probes = slices.Grow(st.Probes, len(slots))
	for _, s := range slots {
		st.Probes = append(st.Probes, Status{})
		p := &st.Probes[len(st.Probes)-1]
		s.fill(p, c)
		st.Address, st.Ports = in.endpoint(s.currentAddress(), s.spec.Load().target.Ports)
		passes := p.Verdict == probe.Passing && p.Instance == in.id
		if s.kind == probe.Readiness {
			st.Ready = st.Ready && (passes || p.Rule.Effect == probe.EffectWarn)
			warned = warned || p.Warned
		}
		st.Live = st.Live && !p.FailsInstance(in.id)
		st.Ejection = cmp.Or(st.Ejection, p.Ejection)
		if probed {
			worst.add(p, in)
		}
	}
	worst.tell(st)
	st.Decided = st.Ready || t.isDecided(slots)
	st.Gateway = verdict.GatewayState(&st.Instance, st.Ready, st.Decided, warned, st.Ejection != nil)
}

// isDecided reports whether it is known whether the target is ready: it is ready, or was once, or is known not to be. It is not
// known while the first instance has no verdict yet or could not be attempted.
func (t *target) isDecided(slots []*slot) bool {
	in := t.current()
	switch {
	case in.decided || in.phase == probe.Ended || in.phase == probe.Gone:
		return true
	case in.phase == probe.Waiting:
		return in.restarts > 0 || in.note != nil && (in.note.reason == probe.ReasonNoStart || in.note.reason == probe.ReasonBackOff)
	case in.phase != probe.Running:
		return false
	case len(slots) == 0 || t.isReady(slots):
		return true
	}
	return slices.ContainsFunc(slots, func(s *slot) bool { return s.kind != probe.Liveness && s.hasFailed(in.id) })
}

// cause determines why a target is in its state.
type cause struct {
	state probe.TargetState // state of the target according to its probes
	worst *Status           // first probe with that state, unless it is StateReady
	since time.Time         // latest change of a startup or readiness probe
}

// add adds a probe of a target with the given instance.
func (c *cause) add(p *Status, in *instance) {
	v := p.Verdict
	if p.Instance != in.id {
		v = probe.Undecided
	}
	found := verdict.Findings{Verdict: v, Decided: p.Decided, Blind: p.Blind, Warns: p.Warned && p.Instance == in.id, Effect: p.Rule.Effect}
	if s := verdict.ProbeState(p.ID.Kind, found, in.started); s < c.state {
		c.state, c.worst = s, p
	}
	if p.ID.Kind != probe.Liveness && p.Since.After(c.since) {
		c.since = p.Since
	}
}

// tell completes the status of a target. st.State must be the state according to the instance.
func (c *cause) tell(st *TargetStatus) {
	own := st.State
	st.State = min(own, c.state)
	if st.Since = st.Instance.Since; c.since.After(st.Since) {
		st.Since = c.since
	}
	if c.worst != nil {
		st.Cause = Cause{c.worst.ID, c.worst.Result.Reason, c.worst.Result.Detail}
		if f := &c.worst.Fault; c.worst.IsFaulty() {
			st.Cause.Reason, st.Cause.Detail = f.Reason, f.Detail
		}
	}
	if own != probe.StateReady && own <= c.state {
		st.Cause.Reason, st.Cause.Detail = st.Instance.Reason, st.Instance.Detail
	}
}

// addShare replaces the detail of a Fault by its Text.
func (c *Cause) addShare(probes []Status, clock *clock.Clock) {
	for i := range probes {
		if p := &probes[i]; p.ID == c.Probe && p.IsFaulty() && p.Fault.Detail == c.Detail {
			c.Detail = p.Fault.Text(clock.Time(clock.Now()))
		}
	}
}

// isReady reports whether the target has started and all its readiness probes pass. An instance that has lost its probes is ready
// if it was ready before.
func (t *target) isReady(slots []*slot) bool {
	in := t.current()
	if len(slots) == 0 {
		return in.hasStartedBare() && (in.ready || !in.kept) && !in.terminating
	}
	for _, s := range slots {
		if s.kind == probe.Readiness && !s.onlyWarns() && !s.hasPassed(in.id) {
			return false
		}
	}
	return in.hasStarted()
}

// SuccessDurations returns the durations of a probe's successful attempts. It returns false if the probe does not exist, or if
// its rule does not have the kubelet's compatibility, for which alone they are recorded.
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
