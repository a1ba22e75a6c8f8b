package notify

import (
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// maxWait bounds how long nobody is told of a target's trouble, since it may be that of another target.
const maxWait = time.Minute

// dependencyWait returns how long after a target has begun to fail the verdicts may come of those that it
// depends on, and that may have failed at the same time: as long as the slowest of their probes takes, and until what
// other engines have found is known here; at most maxWait. It is 0 for a target that depends on none.
func dependencyWait(e *engine.Engine, target string) (wait time.Duration) {
	for _, on := range e.Admin().Dependencies(target) {
		d, _ := e.Admin().Dependency(on)
		for i := range d.Probes {
			wait = max(wait, d.Probes[i].Rule.DetectionTime()+d.Delay)
		}
	}
	return min(wait, maxWait)
}

// undecided returns until when a trouble of a target may turn out to be that of another one, on which it depends. Zero if
// it depends on none.
func (s *targetSource) undecided(ev *event) (until time.Time) {
	if !ev.explicable {
		return time.Time{}
	}
	if wait := dependencyWait(s.engine, ev.Name); wait > 0 {
		return ev.At.Add(wait)
	}
	return time.Time{}
}

// hiddenSince reports whether a trouble has turned out to be that of another target since the event, and before a time, or
// nobody is to be told of the target since then: it is paused, damped or removed.
func (s *targetSource) hiddenSince(ev *event, until time.Time) bool {
	if _, exists := s.engine.Target(ev.Name); !exists && !s.isConfigured(ev.Name) {
		return true
	}
	for _, tr := range s.engine.Records().History(ev.Name) {
		if tr.Seq > ev.seq && !tr.At.After(until) && (tr.Paused || tr.Damped) {
			return true
		}
	}
	for _, on := range s.engine.Admin().Dependencies(ev.Name) {
		d, _ := s.engine.Admin().Dependency(on)
		switch {
		case d.IsOther && hasExplained(&d, ev.At, until):
			return true
		case verdict.ExplainsDependents(d.State) && !d.Since.After(until): // it may have failed before it was taken over
			return true
		}
		for _, tr := range s.engine.Records().History(on) {
			if tr.Seq > ev.seq && !tr.At.After(until) && explains(&tr) {
				return true
			}
		}
	}
	return false
}

// hasExplained reports whether a target of another engine, which has its history, explains failures of those that depend
// on it, or has done so between two times: then a probe of it that passes has begun to pass in between.
func hasExplained(d *engine.Dependency, from, to time.Time) bool {
	for i := range d.Probes {
		p := &d.Probes[i]
		if p.Verdict == probe.Passing && p.Since.After(from) && !p.Since.After(to) && d.Instance.Since.Before(from) {
			return true
		}
	}
	return verdict.ExplainsDependents(d.State)
}

// explains reports whether a target is, after a transition, in a state that explains failures of those that
// depend on it. That it is paused or damped does not change that.
func explains(tr *engine.Transition) bool {
	hidden := tr.State == probe.StatePaused || tr.State == probe.StateDamped
	return verdict.ExplainsDependents(tr.State) || hidden && tr.Kind != 0 && tr.Verdict == probe.Failing && !tr.Warns
}

// mayBeExplained reports whether a target is in trouble, and that may turn out to be that of another one.
func mayBeExplained(e *engine.Engine, target string, now time.Time) bool {
	wait := dependencyWait(e, target)
	if wait == 0 {
		return false
	}
	st, _ := e.Target(target)
	return isExplicable(st.State) && now.Before(st.Since.Add(wait))
}

// isExplicable reports whether a target is in a trouble that is none if one on which it depends is in trouble.
func isExplicable(s probe.TargetState) bool {
	return s.InTrouble() && verdict.OfDependent(s) != s
}
