package verdict

import "github.com/sonde-probe/sonde/probe"

// With the policy "evidence", State.Run has one of two scores, of which it has one at a time. Up to
// MaxScore it is the score of a probe that has not failed: each failure adds FailureWeight, and
// each success takes 1 off it, down to 0. Above, it is MaxScore plus the score of a probe that has
// failed, which changes in the same way, up to MaxScore. At MaxScore the first becomes the second,
// and at 0 the second the first.
//
// Each is a CUSUM: a sum of log-likelihood ratios with a barrier. So the evidence that a target
// works again must be as strong as the evidence that it does not.
const mostEvidence = 2 * probe.MaxScore

// Score returns the score of a state that was counted by the policy "evidence", from 0 to
// probe.MaxScore; 0 for others.
func (s State) Score() int32 {
	switch {
	case s.Policy != probe.PolicyEvidence:
		return 0
	case s.alarmed():
		return s.Run - probe.MaxScore
	}
	return s.Run
}

// alarmed reports whether the policy "evidence" has found that the probe fails, and since then not
// that it passes.
func (s *State) alarmed() bool { return s.Policy == probe.PolicyEvidence && s.Run > probe.MaxScore }

// weigh adds an outcome to the score.
func (s *State) weigh(succeeded bool) {
	alarmed := s.alarmed()
	if succeeded {
		s.Last, s.Run = probe.Success, max(0, s.Run-1)
	} else {
		s.Last, s.Run = probe.Failure, min(mostEvidence, s.Run+probe.FailureWeight)
	}
	switch {
	case alarmed && !s.alarmed():
		s.Run = 0
	case !alarmed && s.Run >= probe.MaxScore:
		s.Run = mostEvidence
	}
}
