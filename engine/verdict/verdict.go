// Package verdict decides whether a probe passes, and whether it may be attempted now.
//
// Step does the work of the kubelet's probe worker before an attempt (look) and after it (count), but not the attempt itself. It
// is a pure function of rule, state, event and time: it has no I/O and reads no clock, so that decisions can be tested, replayed,
// and moved to another machine.
//
//	verdict.go  State, Event, Next and Step; count compares runs with thresholds
//	evidence.go the policy "evidence": outcomes add up to a score
//	warning.go  Warnings: whether a passing probe warns
//	level.go    Level: whether the level of a number has risen
//	restore.go  Restore: resumes from a saved state
//	period.go   Period: the interval between two attempts
//	wait.go     WaitReason: why a probe makes no attempts
//	target.go   the state of a target, from its instance and its probes
//	damping.go  Penalty: the accumulated penalty for the flaps of a target
//
// The K numbers in comments refer to behaviors of the kubelet v1.36 that are listed in docs/kubelet.md.
package verdict

import (
	"math"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// State is the complete state of one probe between two events. It is a comparable value of fixed size. The zero State is that of
// a probe without events.
type State struct {
	Instance string        `json:"i,omitempty"`    // ID of the instance that the state is about; empty before the first
	Verdict  probe.Verdict `json:"v,omitempty"`    // published verdict
	Last     probe.Outcome `json:"l,omitempty"`    // Success or Failure; Unknown before the first
	Policy   probe.Policy  `json:"p,omitempty"`    // policy by which Run is counted: that of the rule, once an attempt has counted
	Run      int32         `json:"run,omitempty"`  // attempts in a row with the outcome Last, without uncounted failures; or see Score
	Errors   int32         `json:"err,omitempty"`  // consecutive attempts with the outcome Unknown
	OnHold   bool          `json:"hold,omitempty"` // no attempts until there is a new instance
	Down     bool          `json:"down,omitempty"` // Verdict was published because the instance does not run
}

// Event is an input of Step: a look at the instance, or a finished attempt.
type Event struct {
	Attempted bool           // an attempt has finished; otherwise the event is a look
	Instance  probe.Instance // the current instance for a look, or the one that was attempted
	Started   bool           // for a look: the instance has started
	Outcome   probe.Outcome  // for an attempt: its outcome
	Extra     bool           // for an attempt: it was outside the probe's regular times, so that a failure does not count
}

// Next is the consequence of an event: whether to make an attempt, and whether to publish the state.
type Next struct {
	// WaitReason is why no attempt is to be made. If it is NotWaiting, the caller of Step makes an attempt: now, after a look, or
	// at the probe's next regular time, after an attempt.
	WaitReason WaitReason
	At         time.Time // while WaitReason is InitialDelay, when to look again; zero if not before the instance changes
	Changed    bool      // the instance or the verdict has changed and must be published
}

// Step applies one event to s, the state of a probe with the rule r. It returns the new state, and what the caller must do next.
// The results depend only on the arguments.
func Step(r probe.Rule, s State, e Event, now time.Time) (State, Next) {
	if e.Attempted {
		next := count(&r, &s, &e)
		return s, next
	}
	next := look(&r, &s, &e, now)
	return s, next
}

// Initial returns the verdict that is published before the first attempt on an instance (K34 in docs/kubelet.md).
func Initial(k probe.Kind) probe.Verdict {
	switch k {
	case probe.Readiness:
		return probe.Failing
	case probe.Liveness:
		return probe.Passing
	}
	return probe.Undecided
}

// Renew returns the state of a probe after its handler or the environment of its target was replaced. The run starts over, but
// the published verdict remains until the next one, and a started instance remains started.
func Renew(k probe.Kind, s State) State {
	held := s.OnHold && k == probe.Startup && s.Verdict == probe.Passing
	return State{Instance: s.Instance, Verdict: s.Verdict, Down: s.Down, OnHold: held}
}

// Relocate returns the state of a probe after its endpoint, such as the address or port, has changed. It is like Renew, but the
// published verdict does not apply to the new endpoint. The verdict becomes undecided, except for liveness, which passes as it
// does initially, so that nothing is restarted because of another endpoint.
func Relocate(k probe.Kind, s State) State {
	s = Renew(k, s)
	if s.Instance == "" || s.OnHold || s.Down {
		return s
	}
	s.Verdict = probe.Undecided
	if k == probe.Liveness {
		s.Verdict = Initial(k)
	}
	return s
}

// look decides, in the kubelet's order (K31 to K40), whether to make an attempt.
func look(r *probe.Rule, s *State, e *Event, now time.Time) Next {
	in := &e.Instance
	if in.Phase == probe.Absent || in.ID == "" {
		return Next{WaitReason: NoInstance}
	}
	before := s.Verdict
	adopted := s.adopt(r, in)
	var next Next
	switch {
	case s.OnHold && in.Phase != probe.Gone:
		next.WaitReason = Held
	case in.Phase != probe.Running:
		next = s.notRunning(r, in)
	case in.Terminating && r.Kind != probe.Readiness:
		next = s.terminating(r)
	default:
		next = s.running(r, e, now)
	}
	next.Changed = adopted || s.Verdict != before
	return next
}

// adopt resets the state for another instance (K34), and reports whether the instance differs. It ends a hold if the driver will
// no longer replace the instance.
func (s *State) adopt(r *probe.Rule, in *probe.Instance) bool {
	if s.Instance == in.ID {
		s.OnHold = s.OnHold && holds(r, s.Verdict, in)
		return false
	}
	old := *s
	*s = State{Instance: in.ID, Verdict: Initial(r.Kind)}
	if r.Compatibility == probe.Kubelet {
		s.Last, s.Policy, s.Run, s.Errors = old.Last, old.Policy, old.Run, old.Errors // K48
	}
	return true
}

// notRunning publishes that an instance that does not run is not healthy (K37). The kubelet also fails liveness, which can
// restart an instance that is running again by then (K143); the engine does so only in the kubelet's compatibility.
func (s *State) notRunning(r *probe.Rule, in *probe.Instance) Next {
	switch {
	case s.OnHold: // and Gone: the verdict does not change
	case r.Compatibility == probe.Kubelet:
		s.Verdict, s.Down = probe.Failing, false
	case r.Kind == probe.Liveness:
		s.Verdict, s.Down = probe.Undecided, true
	default:
		s.Verdict, s.Down = probe.Failing, true
	}
	if in.Phase == probe.Gone {
		return Next{WaitReason: Finished}
	}
	return Next{WaitReason: NotRunning}
}

// revive undoes the effect of notRunning when the instance runs again.
func (s *State) revive(r *probe.Rule) {
	if s.Down {
		s.Verdict, s.Down = Initial(r.Kind), false
	}
}

// terminating stops the startup and liveness probes of an instance that is being deleted, so that they do not restart it (K38).
// The kubelet also treats it as started, even if it never was (K99); the engine does so only in the kubelet's compatibility.
func (s *State) terminating(r *probe.Rule) Next {
	s.revive(r)
	if r.Kind == probe.Liveness || r.Compatibility == probe.Kubelet {
		s.Verdict = probe.Passing
	}
	return Next{WaitReason: Finished}
}

// running applies the initial delay (K39), and makes the other kinds of probes wait for the startup probes (K40).
func (s *State) running(r *probe.Rule, e *Event, now time.Time) Next {
	s.revive(r)
	start := e.Instance.Since.Add(r.InitialDelay)
	switch {
	case now.Before(start):
		return Next{WaitReason: InitialDelay, At: start}
	case r.Kind == probe.Startup && e.Started:
		return Next{WaitReason: Started}
	case r.Kind != probe.Startup && !e.Started:
		return Next{WaitReason: NotStarted}
	}
	return Next{}
}

// count folds the outcome of an attempt into the run, and publishes the verdict when the threshold is reached (K41 to K51).
func count(r *probe.Rule, s *State, e *Event) Next {
	if s.late(r, &e.Instance) {
		return Next{}
	}
	if e.Outcome == probe.Unknown {
		s.Errors = increment(s.Errors)
		if r.OnError == probe.ErrorIgnored {
			return Next{} // K41
		}
	} else {
		s.Errors = 0
	}
	s.follow(r.Policy)
	if e.Extra && !succeeded(e.Outcome) {
		if s.Last == probe.Success && r.Policy == probe.PolicyRuns {
			s.Last, s.Run = probe.Unknown, 0
		}
		return Next{}
	}
	before := s.Verdict
	if r.Policy == probe.PolicyEvidence {
		s.weigh(succeeded(e.Outcome))
	} else {
		s.extend(e.Outcome)
	}
	if !s.decided(r) {
		return Next{}
	}
	s.Verdict = s.found()
	next := Next{Changed: s.Verdict != before}
	if holds(r, s.Verdict, &e.Instance) {
		s.OnHold = true
		if s.Policy == probe.PolicyRuns || r.Compatibility == probe.Kubelet {
			s.Run = 0 // K49; a score is kept in case the driver postpones the replacement
		}
		next.WaitReason = Held
	}
	return next
}

// late reports whether a result is too late to count: it is about another instance, or the probe was put on hold, or the instance
// stopped running or began to terminate, while the attempt was in flight.
func (s *State) late(r *probe.Rule, in *probe.Instance) bool {
	other := s.Instance == "" || s.Instance != in.ID
	return other || s.OnHold || s.Down || in.Terminating && r.Kind != probe.Readiness
}

// succeeded reports whether an outcome counts as a success (K45).
func succeeded(o probe.Outcome) bool { return o == probe.Success || o == probe.Warning }

// extend extends the run of equal outcomes, or starts a new one (K45).
func (s *State) extend(o probe.Outcome) {
	if succeeded(o) {
		o = probe.Success
	} else {
		o = probe.Failure
	}
	if s.Last != o {
		s.Last, s.Run = o, 0
	}
	s.Run = increment(s.Run)
}

// follow resets the count if it was made by another policy than that of the rule.
func (s *State) follow(p probe.Policy) {
	if s.Policy != p {
		s.Policy, s.Last, s.Run = p, probe.Unknown, 0
	}
}

// decided reports whether the counted attempts decide a verdict: the run has reached its threshold (K46), or the score decides.
// Counts of another policy decide nothing.
func (s *State) decided(r *probe.Rule) bool {
	switch {
	case s.Policy != r.Policy || s.Last == probe.Unknown:
		return false
	case r.Policy == probe.PolicyEvidence:
		return s.alarmed() || s.Last == probe.Success
	}
	return s.Run >= r.Threshold(s.Last)
}

// found returns the verdict that the counted attempts decide.
func (s *State) found() probe.Verdict {
	if s.alarmed() || s.Policy == probe.PolicyRuns && s.Last == probe.Failure {
		return probe.Failing
	}
	return probe.Passing
}

// holds reports whether verdict v puts the probe on hold (K49). A startup probe that has passed is finished. A startup or
// liveness probe that fails waits until the driver has replaced the instance, if the driver manages it and the probe's effect is
// EffectFail.
func holds(r *probe.Rule, v probe.Verdict, in *probe.Instance) bool {
	switch {
	case r.Kind == probe.Startup && v == probe.Passing:
		return true
	case r.Kind != probe.Readiness && v == probe.Failing:
		return in.Managed && r.Effect == probe.EffectFail
	}
	return false
}

// increment adds 1, up to the maximum int32.
func increment(n int32) int32 { return min(n, math.MaxInt32-1) + 1 }
