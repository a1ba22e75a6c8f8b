package engine

import (
	"sync/atomic"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// summaries keep the summary of each target up to date, which is for its gauge and for subscribers, and its history. A
// summary follows from the instance of the target and from its probes, and from what is decided beside them: dependencies,
// dampings, pauses and ejections. scheduler.mu guards it.
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
	flaps        uint64 // of targets that are to be damped
	dampings     uint64 // how often a target was damped

	status TargetStatus // of the latest target that was updated: its memory is used again
}

// advance ends the ejections and dampings whose time is over, some at a time. The slots are by key of the schedule.
func (m *summaries) advance(slots []*slot, now int64) {
	m.endEjections(slots, now)
	m.decayPenalties(now)
}

// targetStates are the states of all targets, kept up to date so that readers need not visit
// the targets. registry.mu guards them.
type targetStates struct {
	count   TargetStates
	ejected int               // how many targets are ejected
	trouble index             // the targets in trouble
	since   map[*target]int64 // when those that dates reports got into their state

	restated  map[*target]restated // what another engine has said of those that dates reports: see Restated.Since
	explained map[*target]string   // the dependencies that explain the failures of those that are unreachable
}

// set changes the state of a target that exists.
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
	} else if state == probe.StateReady { // it has recovered since
		delete(s.restated, t)
	}
}

// restated is since when a target is in a state.
type restated struct {
	state probe.TargetState
	since int64
}

// restateSince notes since when a target is in a state, as another engine knows it.
func (r *registry) restateSince(t *target, state probe.TargetState, since, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states.restated, t)
	if !dates(state) || since > now { // by a clock that is ahead
		return
	}
	if r.states.restated[t] = (restated{state, since}); t.currentState() == state {
		r.states.since[t] = since
	}
}

// dates reports whether it is kept since when a target is in a state: one of trouble, unreachable,
// damped or paused. Since when it is in another one follows from its instance and its probes.
func dates(s probe.TargetState) bool {
	return s.InTrouble() || verdict.ExplainsDependents(s) || s == probe.StateDamped || s == probe.StatePaused
}

// remove forgets a target.
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

// setSummary changes the summary of a target, and reports whether it had another one. It does
// nothing about a target that was removed.
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

// stateSince returns when a target got into its state, if dates reports that, or else 0.
func (r *registry) stateSince(t *target) int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.states.since[t]
}

// stateCounts returns how many targets there are in each state.
func (r *registry) stateCounts() TargetStates {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.states.count
}

// ejectedCount returns how many targets are ejected.
func (r *registry) ejectedCount() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.states.ejected
}

func (t *target) currentState() probe.TargetState { return t.gauge.State() }

// updateState makes the summary of a target what its instance and its probes add up to now, and
// tells the subscribers to targets if it is another one.
func (m *summaries) updateState(t *target) { m.updateStateOf(t, true) }

// updateStateOf is updateState. The target may flap if it has the probes that it had: other ones may say
// something else about it, which it did not do itself.
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

// brief returns what a state depends on.
func (i *instance) brief() *probe.Instance {
	in := &probe.Instance{Phase: i.phase, Managed: i.managed, Terminating: i.terminating, Retained: i.retained}
	if i.note != nil {
		in.Reason = i.note.reason
	}
	return in
}

// state returns the state of the target as its instance has it, and whether its probes decide
// too: see verdict.InstanceState.
func (i *instance) state(hasProbes bool) (s probe.TargetState, probed bool) {
	if s, probed = verdict.InstanceState(i.brief()); !hasProbes && s == probe.StateReady && i.kept && !i.ready {
		s = probe.StateStarting
	}
	return s, probed
}
