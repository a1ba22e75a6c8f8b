// Package verdict decides whether a probe passes, and whether to attempt it now.
//
// Step does what the kubelet's probe worker does before an attempt (the look) and
// after it (the count), without the attempt itself. It is a pure function of rule,
// state, event and time: it has no I/O and reads no clock, so that decisions can
// be tested, replayed, and moved to another machine.
//
//	verdict.go  State, Event, Next and Step; count compares runs with thresholds
//	evidence.go the policy "evidence": outcomes that are weighed
//	warning.go  Warnings: whether a probe that passes warns
//	level.go    whether the level of a number has risen
//	restore.go  Restore: a state that was saved
//	period.go   Period: the time between two attempts
//	wait.go     WaitReason: why a probe makes no attempt
//	target.go   what an instance and its probes add up to: the state of a target
//	damping.go  Penalty: what the flaps of a target add up to
//
// The K numbers in comments name behaviours of the kubelet v1.36 as docs/kubelet.md
// lists them.
package verdict

import (
	"math"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// State is all that is remembered about one probe between two events. It is a
// comparable value of fixed size; the zero State has seen nothing.
type State struct {
	Instance string        `json:"i,omitempty"`    // the ID of the instance being judged; empty before the first
	Verdict  probe.Verdict `json:"v,omitempty"`    // what is published
	Last     probe.Outcome `json:"l,omitempty"`    // Success or Failure; Unknown before the first
	Policy   probe.Policy  `json:"p,omitempty"`    // by which Run is counted; that of the rule once an attempt has counted
	Run      int32         `json:"run,omitempty"`  // how many attempts in a row had the outcome Last, without failures that did not count; with the policy "evidence" see Score
	Errors   int32         `json:"err,omitempty"`  // how many attempts in a row had the outcome Unknown
	OnHold   bool          `json:"hold,omitempty"` // no attempts until there is another instance
	Down     bool          `json:"down,omitempty"` // Verdict was published because the instance does not run, not by attempts
}

// Event is what happened: the instance was looked at, or an attempt has ended.
type Event struct {
	Attempted bool           // an attempt has ended; otherwise it is a look
	Instance  probe.Instance // the instance looked at, or attempted
	Started   bool           // of a look: whether the instance has started
	Outcome   probe.Outcome  // of an attempt: what it found
	Extra     bool           // of an attempt: outside the probe's regular times, so that a failure does not count
}

// Next is what follows from an event: whether there is an attempt, and what to publish.
type Next struct {
	// WaitReason says why there is no attempt. If it is NotWaiting, the caller of Step makes one now, after a look, or at the
	// probe's next regular time, after an attempt.
	WaitReason WaitReason
	At         time.Time // when to look again, while WaitReason is InitialDelay; zero: when the instance changes, if ever
	Changed    bool      // the instance or the verdict has changed, and must be published
}

// Step applies one event to s, the state of a probe with the rule r. It returns the new
// state, and what the caller must do next. The results depend only on the arguments.
func Step(r probe.Rule, s State, e Event, now time.Time) (State, Next) {
	if e.Attempted {
		next := count(&r, &s, &e)
		return s, next
	}
	next := look(&r, &s, &e, now)
	return s, next
}

// Initial returns the verdict published before the first attempt on an instance (K34
// in docs/kubelet.md).
func Initial(k probe.Kind) probe.Verdict {
	switch k {
	case probe.Readiness:
		return probe.Failing
	case probe.Liveness:
		return probe.Passing
	}
	return probe.Undecided
}

// Renew returns the state of a probe whose handler was replaced, or the environment of
// its target: its run starts again. What it had published stands until the next verdict,
// and an instance that has started stays started.
func Renew(k probe.Kind, s State) State {
	held := s.OnHold && k == probe.Startup && s.Verdict == probe.Passing
	return State{Instance: s.Instance, Verdict: s.Verdict, Down: s.Down, OnHold: held}
}

// Relocate returns the state of a probe that has another endpoint, such as another address
// or port: like Renew, but nothing that was published is known to be true there. The
// verdict is undecided; only liveness passes, as it does at first, so that nothing is
// restarted for what another address did.
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

// look decides in the kubelet's order (K31 to K40) whether to make an attempt.
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

// adopt starts again for another instance (K34), and reports whether it is another
// one. It ends a hold if the driver will no longer replace the instance.
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

// notRunning publishes that an instance which does not run is not healthy (K37).
// The kubelet fails liveness too, which can restart an instance that runs again by
// then (K143); the engine does so in its compatibility only.
func (s *State) notRunning(r *probe.Rule, in *probe.Instance) Next {
	switch {
	case s.OnHold: // and Gone: the verdict stands
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

// revive takes back what notRunning has published, when the instance runs again.
func (s *State) revive(r *probe.Rule) {
	if s.Down {
		s.Verdict, s.Down = Initial(r.Kind), false
	}
}

// terminating stops the startup and liveness probes of an instance that is being
// deleted, so that they do not restart it (K38). The kubelet also calls it started,
// even if it never has (K99); the engine does so in its compatibility only.
func (s *State) terminating(r *probe.Rule) Next {
	s.revive(r)
	if r.Kind == probe.Liveness || r.Compatibility == probe.Kubelet {
		s.Verdict = probe.Passing
	}
	return Next{WaitReason: Finished}
}

// running applies the initial delay (K39), and lets the other kinds wait for the
// startup probes (K40).
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

// count folds the outcome of an attempt into the run and publishes at the
// threshold (K41 to K51).
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
			s.Run = 0 // K49; a score stands, for when the driver puts the replacement off
		}
		next.WaitReason = Held
	}
	return next
}

// late reports whether a result comes too late to count: it is about another
// instance, or while the attempt was in flight the probe was put on hold, or the
// instance stopped running or began to terminate.
func (s *State) late(r *probe.Rule, in *probe.Instance) bool {
	other := s.Instance == "" || s.Instance != in.ID
	return other || s.OnHold || s.Down || in.Terminating && r.Kind != probe.Readiness
}

// succeeded reports whether an outcome counts as a success (K45).
func succeeded(o probe.Outcome) bool { return o == probe.Success || o == probe.Warning }

// extend makes the run of equal outcomes longer, or starts another one (K45).
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

// follow starts the count again if it was made by another policy than that of the rule.
func (s *State) follow(p probe.Policy) {
	if s.Policy != p {
		s.Policy, s.Last, s.Run = p, probe.Unknown, 0
	}
}

// decided reports whether the attempts that were counted decide: the run has reached its
// threshold (K46), or they have been weighed. What was counted by another policy does not.
func (s *State) decided(r *probe.Rule) bool {
	switch {
	case s.Policy != r.Policy || s.Last == probe.Unknown:
		return false
	case r.Policy == probe.PolicyEvidence:
		return s.alarmed() || s.Last == probe.Success
	}
	return s.Run >= r.Threshold(s.Last)
}

// found returns the verdict of attempts that decide.
func (s *State) found() probe.Verdict {
	if s.alarmed() || s.Policy == probe.PolicyRuns && s.Last == probe.Failure {
		return probe.Failing
	}
	return probe.Passing
}

// holds reports whether verdict v ends the attempts on an instance (K49): a startup
// probe that has passed is finished; a startup or liveness probe that fails waits
// until the driver has replaced the instance, if one manages it and the failure is a reason.
func holds(r *probe.Rule, v probe.Verdict, in *probe.Instance) bool {
	switch {
	case r.Kind == probe.Startup && v == probe.Passing:
		return true
	case r.Kind != probe.Readiness && v == probe.Failing:
		return in.Managed && r.Effect == probe.EffectFail
	}
	return false
}

// increment adds 1, up to the greatest int32.
func increment(n int32) int32 { return min(n, math.MaxInt32-1) + 1 }
