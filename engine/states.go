package engine

import (
	"sync/atomic"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// summaries keeps the summary of each target, for its gauge and for subscribers, and its history up to date. A summary depends on
// the instance and the probes of the target, and on dependencies, dampings, pauses and ejections. scheduler.mu guards it.
type summaries struct {
	clock       *clock.Clock
	registry    *registry
	monitor     *health.Monitor
	peers       *peers
	subscribers *subscribers
	out         *outbox
	log         *eventLog

	dependencies atomic.Pointer[dependencies] // replaced as a whole while scheduler.mu is held
	penalties    penalties
	ejections    ejections
	history      history
	uptimes      uptimes
	flaps        uint64 // number of flaps of targets with a Damping
	dampings     uint64 // number of times a target was damped

	status TargetStatus // of the latest updated target: its memory is reused
}

// advance ends expired ejections and dampings, a limited number per call. slots are indexed by schedule key.
func (m *summaries) advance(slots []*slot, now int64) {
	m.endEjections(slots, now)
	m.decayPenalties(now)
}

// targetStates are the states of all targets, kept up to date so that readers need not visit the targets. registry.mu guards
// them.
type targetStates struct {
	count   TargetStates
	ejected int               // number of ejected targets
	trouble index             // the targets in trouble
	since   map[*target]int64 // when targets entered their state, for states for which dates returns true

	restated  map[*target]restated // states reported by another engine, for states for which dates returns true: see Restated.Since
	explained map[*target]string   // for unreachable targets, the dependency that explains their failures
}

// set changes the state of an existing target.
func (s *targetStates) set(t *target, state probe.TargetState, now int64) {
	before := t.currentState()
	if before == state {
		return
	}
	s.count[before]--
	s.count[state]++
	switch {
	case before.InTrouble() && !state.InTrouble():
		s.trouble.remove(t.name)
	case !before.InTrouble() && state.InTrouble():
		s.trouble.insert(t)
	}
	delete(s.since, t)
	if dates(state) {
		s.since[t] = now
		if of, isKnown := s.restated[t]; isKnown && of.state == state {
			s.since[t] = of.since
		}
	} else if state == probe.StateReady { // it has recovered in the meantime
		delete(s.restated, t)
	}
}

// restated is a target's state, and when it began, as reported by another engine.
type restated struct {
	state probe.TargetState
	since int64
}

// restateSince records when a target entered a state, as reported by another engine.
func (r *registry) restateSince(t *target, state probe.TargetState, since, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states.restated, t)
	if !dates(state) || since > now { // the other engine's clock is ahead
		return
	}
	if r.states.restated[t] = (restated{state, since}); t.currentState() == state {
		r.states.since[t] = since
	}
}

// dates reports whether targetStates records when a target entered state s: states of trouble, unreachable, damped or paused. For
// other states the time follows from the instance and the probes.
func dates(s probe.TargetState) bool {
	return s.InTrouble() || verdict.ExplainsDependents(s) || s == probe.StateDamped || s == probe.StatePaused
}

// remove removes a target.
func (s *targetStates) remove(t *target) {
	before := t.currentState()
	s.count[before]--
	s.ejected -= one(t.gauge.summary().ejected)
	if before.InTrouble() {
		s.trouble.remove(t.name)
	}
	delete(s.since, t)
	delete(s.restated, t)
	delete(s.explained, t)
}

// setSummary changes the summary of a target, and reports whether it has changed. It has no effect on a target that was removed.
func (r *registry) setSummary(t *target, sum summary, now int64) bool {
	before := t.gauge.summary()
	if before == sum {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.targets[t.name] != t {
		return false
	}
	r.states.set(t, sum.state, now)
	r.states.ejected += one(sum.ejected) - one(before.ejected)
	t.gauge.set(sum)
	return true
}

// stateSince returns when a target entered its state, or 0 if dates returns false for the state.
func (r *registry) stateSince(t *target) int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.states.since[t]
}

// stateCounts returns the number of targets in each state.
func (r *registry) stateCounts() TargetStates {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.states.count
}

// ejectedCount returns the number of ejected targets.
func (r *registry) ejectedCount() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.states.ejected
}

func (t *target) currentState() probe.TargetState { return t.gauge.State() }

// updateState recomputes the summary of a target from its instance and its probes, and notifies the subscribers to targets if it
// has changed.
func (m *summaries) updateState(t *target) { m.updateStateOf(t, true) }

// updateStateOf is updateState. mayFlap must be false if the set of probes has changed: a resulting loss of readiness is not a
// flap of the target itself.
func (m *summaries) updateStateOf(t *target, mayFlap bool) {
	in, slots, st := t.current(), m.registry.probesOf(t), &m.status
	t.fill(st, slots, m.clock)
	explained := t.gauge.summary().explains
	state, on := m.stateAmongDependencies(t, st.State)
	sum := summary{gateway: st.Gateway, ready: st.Ready, decided: st.Decided, ejected: st.Ejection != nil, explains: verdict.ExplainsDependents(state)}
	isPaused := m.registry.pauseOf(t.name) != nil
	begins := mayFlap && !isPaused && m.countFlap(t, slots, state, &sum)
	conditions := verdict.Conditions{Explained: on != "", Damped: m.registry.penaltyOf(t.name).IsDamped(), Paused: isPaused}
	sum.state, sum.gateway = conditions.Fold(in.phase, state, sum.gateway)
	isExplained := m.registry.setTroubledDependency(t, on)
	before, now := t.currentState(), m.clock.Now()
	isChanged := m.registry.setSummary(t, sum, now)
	if isChanged && before != sum.state {
		m.recordState(t, before, sum.state, st.Since, now)
	}
	if isChanged || isExplained {
		m.subscribers.notifyTarget(t.name, probeChanged)
	}
	if begins {
		m.recordDamping(t)
	}
	if explained != sum.explains {
		m.updateDependents(t.name)
	}
}

// brief returns the parts of the instance that determine a state.
func (i *instance) brief() *probe.Instance {
	in := &probe.Instance{Phase: i.phase, Managed: i.managed, Terminating: i.terminating, Retained: i.retained}
	if i.note != nil {
		in.Reason = i.note.reason
	}
	return in
}

// state returns the state of the target according to its instance, and whether its probes matter as well: see
// verdict.InstanceState.
func (i *instance) state(hasProbes bool) (s probe.TargetState, probed bool) {
	if s, probed = verdict.InstanceState(i.brief()); !hasProbes && s == probe.StateReady && i.kept && !i.ready {
		s = probe.StateStarting
	}
	return s, probed
}
