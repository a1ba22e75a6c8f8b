// Package verdict decides. Step is everything the kubelet's probe worker does
// before an attempt (the look) and after it (the count), minus the doing: a pure
// function of rule, state, event and now. It starts nothing, logs nothing and
// asks no clock, so that it can be tested, replayed, and shipped to another
// machine.
//
// The K numbers in comments count behaviours of the kubelet v1.36 as
// RATIONALE.md lists them.
package verdict

import (
	"math"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// State is all that is remembered about one probe between two events. It is a
// comparable value of fixed size; the zero State has seen nothing.
type State struct {
	Instance string        // the life being judged; empty before the first
	Verdict  probe.Verdict // what was published last
	Last     probe.Outcome // Success or Failure; Unknown before the first
	Run      int32         // how many times in a row Last was seen
	Errors   int32         // how many attempts in a row could not be made
	OnHold   bool          // no attempts until another instance
	Down     bool          // Verdict says that the instance does not run, not what a probe found
}

// Event is what happened: somebody looked at the instance, or an attempt ended.
type Event struct {
	Type     EventType
	Instance probe.Instance // the instance looked at, or attempted
	Started  bool           // Looked: whether the instance has started
	Outcome  probe.Outcome  // Attempted: what the attempt found
}

// EventType says which of its fields an Event uses.
type EventType uint8

// The types of events.
const (
	Looked EventType = iota
	Attempted
)

// Next is what follows from an event.
type Next struct {
	Do         Do
	At         time.Time  // WaitReason: look again at this time; zero: only when the instance changes
	WaitReason WaitReason // why there is no attempt now
	Changed    bool       // State's instance or verdict is news, to be published
}

// Do is the one thing to do next.
type Do uint8

// What to do next.
const (
	Wait     Do = iota // look again at Next.At, or when the instance changes
	Continue           // look again at the probe's next turn
	Attempt            // call the handler now
	Stop               // nothing is left to do for this instance
)

// Step folds one event into s. Equal arguments give equal answers.
func Step(r probe.Rule, s State, e Event, now time.Time) (State, Next) {
	if e.Type == Attempted {
		next := count(&r, &s, &e)
		return s, next
	}
	next := look(&r, &s, &e, now)
	return s, next
}

// Initial returns the verdict published when an instance is first seen (K34).
func Initial(k probe.Kind) probe.Verdict {
	switch k {
	case probe.Readiness:
		return probe.Failing
	case probe.Liveness:
		return probe.Passing
	}
	return probe.Undecided
}

// Renew returns the state of a probe whose handler or target was replaced: it
// judges afresh. What it had published stands until it decides again, and an
// instance that has started stays started.
func Renew(k probe.Kind, s State) State {
	held := s.OnHold && k == probe.Startup && s.Verdict == probe.Passing
	return State{Instance: s.Instance, Verdict: s.Verdict, Down: s.Down, OnHold: held}
}

// look asks in the kubelet's order (K31 to K40) whether an attempt is due.
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
		next = s.leave(r)
	default:
		next = s.running(r, e, now)
	}
	next.Changed = adopted || s.Verdict != before
	return next
}

// adopt begins the judging of another life (K34) and reports whether it did. It
// lifts a hold that nobody would ever end.
func (s *State) adopt(r *probe.Rule, in *probe.Instance) bool {
	if s.Instance == in.ID {
		s.OnHold = s.OnHold && holds(r, s.Verdict, in)
		return false
	}
	old := *s
	*s = State{Instance: in.ID, Verdict: Initial(r.Kind)}
	if r.Compatibility == probe.Kubelet {
		s.Last, s.Run, s.Errors = old.Last, old.Run, old.Errors // K48
	}
	return true
}

// notRunning publishes that nothing can be well with what does not run (K37).
// The kubelet fails liveness too, which can end an instance that runs again by
// then (K143); only its compatibility does.
func (s *State) notRunning(r *probe.Rule, in *probe.Instance) Next {
	switch {
	case s.OnHold: // and gone: what was decided stands
	case r.Compatibility == probe.Kubelet:
		s.Verdict = probe.Failing
	case r.Kind == probe.Liveness:
		s.Verdict, s.Down = probe.Undecided, true
	default:
		s.Verdict, s.Down = probe.Failing, true
	}
	if in.Phase == probe.Gone {
		return Next{Do: Stop, WaitReason: Finished}
	}
	return Next{WaitReason: NotRunning}
}

// revive takes back what notRunning has published, since the instance runs
// again.
func (s *State) revive(r *probe.Rule) {
	if s.Down {
		s.Verdict, s.Down = Initial(r.Kind), false
	}
}

// leave ends startup and liveness probes of an instance that is being deleted,
// so that nobody restarts it (K38). The kubelet also calls it started, which it
// may never have been (K99); only its compatibility does.
func (s *State) leave(r *probe.Rule) Next {
	s.revive(r)
	if r.Kind == probe.Liveness || r.Compatibility == probe.Kubelet {
		s.Verdict = probe.Passing
	}
	return Next{Do: Stop, WaitReason: Finished}
}

// running applies the initial delay (K39) and the gate between startup and the
// other kinds (K40).
func (s *State) running(r *probe.Rule, e *Event, now time.Time) Next {
	s.revive(r)
	begin := e.Instance.Since.Add(r.InitialDelay)
	switch {
	case now.Before(begin):
		return Next{WaitReason: InitialDelay, At: begin}
	case r.Kind == probe.Startup && e.Started:
		return Next{WaitReason: Started}
	case r.Kind != probe.Startup && !e.Started:
		return Next{WaitReason: NotStarted}
	}
	return Next{Do: Attempt}
}

// count folds the outcome of an attempt into the run and publishes at the
// threshold (K41 to K51).
func count(r *probe.Rule, s *State, e *Event) Next {
	if s.late(r, &e.Instance) {
		return Next{Do: Continue}
	}
	if e.Outcome == probe.Unknown {
		s.Errors = up(s.Errors)
		if r.OnError == probe.ErrorIgnored {
			return Next{Do: Continue} // K41
		}
	} else {
		s.Errors = 0
	}
	s.extend(e.Outcome)
	if !s.decided(r) {
		return Next{Do: Continue}
	}
	next := Next{Do: Continue, Changed: s.publish()}
	if holds(r, s.Verdict, &e.Instance) {
		s.OnHold, s.Run = true, 0 // K49
		next.Do, next.WaitReason = Wait, Held
	}
	return next
}

// late reports whether an answer comes too late to count: it is about another
// life, or the probe was decided while the attempt was under way, or the
// instance stopped running or began to leave.
func (s *State) late(r *probe.Rule, in *probe.Instance) bool {
	other := s.Instance == "" || s.Instance != in.ID
	return other || s.OnHold || s.Down || in.Terminating && r.Kind != probe.Readiness
}

// extend makes the run of equal outcomes longer or begins another (K45).
func (s *State) extend(o probe.Outcome) {
	switch o {
	case probe.Warning:
		o = probe.Success
	case probe.Unknown:
		o = probe.Failure
	}
	if s.Last != o {
		s.Last, s.Run = o, 0
	}
	s.Run = up(s.Run)
}

// decided reports whether the run has met its threshold (K46).
func (s *State) decided(r *probe.Rule) bool {
	if s.Last == probe.Success {
		return s.Run >= r.SuccessThreshold
	}
	return s.Run >= r.FailureThreshold
}

// publish turns the run into a verdict and reports whether it is another one.
func (s *State) publish() bool {
	before := s.Verdict
	s.Verdict = probe.Failing
	if s.Last == probe.Success {
		s.Verdict = probe.Passing
	}
	return s.Verdict != before
}

// holds reports whether verdict v ends the attempts on an instance (K49): a
// startup probe that has passed has done its work; a startup or liveness probe
// that fails waits for the instance's end, where somebody brings it about.
func holds(r *probe.Rule, v probe.Verdict, in *probe.Instance) bool {
	switch {
	case r.Kind == probe.Startup && v == probe.Passing:
		return true
	case r.Kind != probe.Readiness && v == probe.Failing:
		return in.Managed
	}
	return false
}

func up(n int32) int32 { return min(n, math.MaxInt32-1) + 1 }
