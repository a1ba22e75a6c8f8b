package notify

import (
	"context"
	"iter"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// source has the current states of the subjects of one kind. It must be safe for concurrent use.
type source interface {
	// current returns the current state of a subject, and whether it exists.
	current(name string) (ev event, exists bool)

	troubled() iter.Seq[string] // yields the names of the subjects that are in trouble
	isHeld() bool               // reports whether the state of all subjects is uncertain now
}

// targetSource is the source of targets and of their events, which are the history of an engine.
type targetSource struct {
	engine       *engine.Engine
	redact       func(string) string
	isConfigured func(target string) bool
	mayNotify    func(target string) bool
	isDoubted    func(Subject) bool
}

func (s *targetSource) isHeld() bool { return s.engine.Health().Isolated }

// after returns up to limit events with greater numbers, in order, and the number from which a later call continues.
// Numbers in between without an event were dropped from the history.
func (s *targetSource) after(seq uint64, limit int) (events []event, last uint64) {
	past, last := s.engine.Records().TransitionsAfter(seq, limit)
	for i := range past {
		tr := &past[i]
		st, exists := s.engine.Target(tr.Target)
		ev := s.event(tr.Target, tr.State, tr.Reason, tr.At)
		cause := causeOf(&tr.Transition, &st)
		ev.seq, ev.Reason, ev.Detail = tr.Seq, cause.Reason, probe.CleanText(s.redact(cause.Detail), maxDetail)
		if cause.Probe.Kind != 0 {
			ev.Probe = cause.Probe.InTarget()
		}
		if ev.Labels = st.Labels; !exists {
			ev.level = keep // a comparison finds that it was removed
		}
		ev.held, ev.restarted = ev.level == firing && (tr.Doubtful || s.isDoubted(ev.Subject)), isRestarted(&st)
		isOver := tr.Kind != 0 && tr.Verdict == probe.Passing && tr.State == probe.StateRestartBlocked // but for the instance's reason
		ev.outdated = ev.level == firing && (isOver || isOutdated(&st))
		if !s.mayNotify(tr.Target) {
			ev.leave()
		}
		events = append(events, ev)
	}
	return events, last
}

// causeOf returns why a target is in the state to which a transition led. A transition of a probe has the cause itself.
// A transition of the instance, or the end of a pause or damping, may have a reason of its own while a probe keeps
// failing: as long as the target stays in the state, the target's cause applies. Later the cause is unknown, unless the
// reason is why the instance itself is in trouble.
func causeOf(tr *engine.Transition, now *engine.TargetStatus) engine.Cause {
	switch {
	case tr.Kind != 0:
		return engine.Cause{Probe: probe.ID{Kind: tr.Kind, Name: tr.Name}, Reason: tr.Reason, Detail: tr.Detail}
	case now.State == tr.State:
		return now.Cause
	case suppresses(tr.Reason), tr.Damped, tr.Undamped, tr.Paused, tr.Unpaused, tr.Reason == probe.ReasonEnding:
		return engine.Cause{}
	}
	return engine.Cause{Reason: tr.Reason, Detail: tr.Detail}
}

func (s *targetSource) current(name string) (ev event, exists bool) {
	st, exists := s.engine.Target(name)
	mayNotify := s.mayNotify(name)
	switch {
	case !exists && !mayNotify:
		return event{level: others, Notice: Notice{Subject: Subject{KindTarget, name}}}, s.isConfigured(name)
	case !exists && s.isConfigured(name):
		return event{level: unknown, Notice: Notice{Subject: Subject{KindTarget, name}}}, true
	case !exists:
		return ev, false
	}
	ev = s.event(name, st.State, st.Cause.Reason, st.Since)
	ev.Labels, ev.Detail = st.Labels, probe.CleanText(s.redact(st.Cause.Detail), maxDetail)
	if st.Cause.Probe.Kind != 0 {
		ev.Probe = st.Cause.Probe.InTarget()
	}
	ev.held = ev.level == firing && (st.Cause.Probe.Kind != 0 && s.engine.Doubts(st.Cause.Probe) || s.engine.Admin().Suppressed(name) != "" || s.isDoubted(ev.Subject))
	ev.restarted, ev.outdated = isRestarted(&st), ev.level == firing && isOutdated(&st)
	if !mayNotify {
		ev.leave()
	}
	return ev, true
}

// leave leaves an event to another engine.
func (ev *event) leave() { ev.own, ev.level = ev.level, others }

// isRestarted reports whether the instance of a target is being terminated for a restart, because a probe fails or at an
// operator's request.
func isRestarted(st *engine.TargetStatus) bool {
	return st.Instance.Reason == probe.ReasonEnding || st.Instance.Reason == probe.ReasonOperatorRestart
}

// isOutdated reports whether a target is in trouble by its probes without a known failure: a reload has replaced the
// failing probes, and no attempt has had an outcome since; or its restart waits for a reload, and no probe fails any
// more.
func isOutdated(st *engine.TargetStatus) bool {
	switch st.State {
	case probe.StateRestartBlocked, probe.StateFailing, probe.StateNotReady:
	default:
		return false
	}
	isOutdated := st.Instance.Reason == probe.ReasonReload
	for i := range st.Probes {
		p := &st.Probes[i]
		if p.Verdict != probe.Failing {
			continue
		}
		if p.Tried != probe.Unknown || p.Blind || p.Fault.Outcome != probe.Unknown { // an engine that starts knows the fault from the previous one
			return false
		}
		isOutdated = true
	}
	return isOutdated
}

func (s *targetSource) event(name string, state probe.TargetState, reason probe.Reason, at time.Time) event {
	return event{level: levelOf(state, reason), explicable: isExplicable(state), Notice: Notice{Subject: Subject{KindTarget, name}, State: state.String(), Reason: reason, Severity: state.Severity(), At: at}}
}

func (s *targetSource) troubled() iter.Seq[string] {
	return func(yield func(string) bool) {
		for st := range s.engine.Select(context.Background(), engine.Filter{State: probe.TargetState.InTrouble}) {
			if !yield(st.Target) {
				return
			}
		}
	}
}
