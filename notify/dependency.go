package notify

import (
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// maxWait bounds the delay of a notice of a target's trouble while another target may explain it.
const maxWait = time.Minute

// dependencyWait returns how long after a target has begun to fail its dependencies may still be found to fail, if they
// failed at the same time: the detection time of their slowest probe, plus the delay until findings of other engines
// arrive here; at most maxWait. It is 0 for a target without dependencies.
func dependencyWait(e *engine.Engine, target string) (wait time.Duration) {
	for _, on := range e.Admin().Dependencies(target) {
		d, _ := e.Admin().Dependency(on)
		for i := range d.Probes {
			wait = max(wait, d.Probes[i].Rule.DetectionTime()+d.Delay)
		}
	}
	return min(wait, maxWait)
}

// undecided returns the time until which a trouble of a target may turn out to be explained by a dependency. It is zero
// if there are no dependencies.
func (s *targetSource) undecided(ev *event) (until time.Time) {
	if !ev.explicable {
		return time.Time{}
	}
	if wait := dependencyWait(s.engine, ev.Name); wait > 0 {
		return ev.At.Add(wait)
	}
	return time.Time{}
}

// hiddenSince reports whether, after the event and until a time, a dependency was found to explain the trouble, or the
// target became one that is not reported: it is paused, damped or removed.
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

// hasExplained reports whether a target of another engine, whose history is not available here, explains failures of its
// dependents, or did so between two times: in that case a passing probe of it began to pass in between.
func hasExplained(d *engine.Dependency, from, to time.Time) bool {
	for i := range d.Probes {
		p := &d.Probes[i]
		if p.Verdict == probe.Passing && p.Since.After(from) && !p.Since.After(to) && d.Instance.Since.Before(from) {
			return true
		}
	}
	return verdict.ExplainsDependents(d.State)
}

// explains reports whether a transition leads to a state that explains failures of the target's dependents, even if the
// target is paused or damped.
func explains(tr *engine.Transition) bool {
	hidden := tr.State == probe.StatePaused || tr.State == probe.StateDamped
	return verdict.ExplainsDependents(tr.State) || hidden && tr.Kind != 0 && tr.Verdict == probe.Failing && !tr.Warns
}

// mayBeExplained reports whether a target is in trouble, and a dependency may still turn out to explain that.
func mayBeExplained(e *engine.Engine, target string, now time.Time) bool {
	wait := dependencyWait(e, target)
	if wait == 0 {
		return false
	}
	st, _ := e.Target(target)
	return isExplicable(st.State) && now.Before(st.Since.Add(wait))
}

// isExplicable reports whether a state is a trouble that does not count if a dependency of the target is in trouble.
func isExplicable(s probe.TargetState) bool {
	return s.InTrouble() && verdict.OfDependent(s) != s
}
