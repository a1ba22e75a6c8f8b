package verdict

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/probe"
)

// Restore returns a saved state in a form from which a probe can resume under rule r. If the rule has lower thresholds than the
// one under which the state was saved, a run that already reaches its threshold is shortened to one attempt less, so that the
// next equal outcome decides, as after a change of a running probe's rule. A run that was counted by another policy is discarded.
//
// Restore returns an error if s is not a state that Step can return for this kind of probe.
func Restore(r probe.Rule, s State) (State, error) {
	if err := s.check(r.Kind); err != nil {
		return State{}, err
	}
	if s.Instance = probe.InstanceID(s.Instance); s.Instance != "" {
		s.follow(r.Policy)
	}
	if s.Run == 0 || s.Policy == probe.PolicyEvidence || s.agrees() {
		return s, nil
	}
	if s.Run = min(s.Run, s.threshold(&r)-1); s.Run <= 0 {
		s.Run, s.Last = 0, probe.Unknown
	}
	return s, nil
}

// Settled returns s without the parts that do not affect later verdicts: the count of unknown outcomes, and the excess of a run
// over its threshold.
func Settled(r probe.Rule, s State) State {
	s.Errors = 0
	if s.Policy == probe.PolicyRuns && s.agrees() {
		s.Run = min(s.Run, s.threshold(&r))
	}
	return s
}

// agrees reports whether the run has the outcome of the published verdict.
func (s *State) agrees() bool {
	switch s.Last {
	case probe.Success:
		return s.Verdict == probe.Passing
	case probe.Failure:
		return s.Verdict == probe.Failing
	}
	return false
}

// threshold returns the length of a run that decides a verdict. A threshold below 1 counts as 1.
func (s *State) threshold(r *probe.Rule) int32 { return max(1, r.Threshold(s.Last)) }

// check returns an error if Step cannot have returned s for a probe of kind k. It permits all rules of that kind, since the rule
// of a probe may change.
func (s *State) check(k probe.Kind) error {
	held := k == probe.Startup && s.Verdict != probe.Undecided || k == probe.Liveness && s.Verdict == probe.Failing
	switch {
	case s.Verdict > probe.Failing:
		return fmt.Errorf("invalid state: verdict %v", s.Verdict)
	case s.Last != probe.Unknown && s.Last != probe.Success && s.Last != probe.Failure:
		return fmt.Errorf("invalid state: run of outcome %v", s.Last)
	case s.Run < 0 || s.Errors < 0:
		return errors.New("invalid state: negative count")
	case s.Instance == "" && *s != (State{}):
		return errors.New("invalid state: verdict without an instance")
	case s.Policy > probe.PolicyEvidence:
		return fmt.Errorf("invalid state: policy %v", s.Policy)
	case s.Policy == probe.PolicyEvidence && (k == probe.Startup || s.Run > mostEvidence || s.Run == probe.MaxScore):
		return fmt.Errorf("invalid state: score %d for a %v probe", s.Run, k)
	case s.Last == probe.Unknown && s.Run > 0:
		return errors.New("invalid state: run without an outcome")
	case s.Last != probe.Unknown && s.Run == 0 && k == probe.Readiness && s.Policy == probe.PolicyRuns:
		return errors.New("invalid state: outcome without a run")
	case s.OnHold && (!held || s.Run > 0 && !s.alarmed() || s.Down):
		return fmt.Errorf("invalid state: %v probe on hold with verdict %v and a run of %d", k, s.Verdict, s.Run)
	case s.Down && s.Verdict == probe.Passing:
		return errors.New("invalid state: passing on an instance that does not run")
	}
	return nil
}
