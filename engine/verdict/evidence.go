package verdict

import "github.com/sonde-probe/sonde/probe"

// With the policy "evidence", State.Run holds one of two scores. Up to MaxScore it is the score of a passing probe: each failure
// adds FailureWeight, and each success subtracts 1, down to 0. Above MaxScore, it is MaxScore plus the score of a failing probe,
// which changes in the same way, up to MaxScore. When the first score reaches MaxScore, the probe fails; when the second reaches
// 0, it passes again.
//
// Each score is a CUSUM: a sum of log-likelihood ratios with a barrier. The evidence that a target works again must therefore be
// as strong as the evidence that it does not.
const mostEvidence = 2 * probe.MaxScore

// Score returns the score of a state counted by the policy "evidence", from 0 to probe.MaxScore, or 0 for other policies.
func (s State) Score() int32 {
	switch {
	case s.Policy != probe.PolicyEvidence:
		return 0
	case s.alarmed():
		return s.Run - probe.MaxScore
	}
	return s.Run
}

// alarmed reports whether the probe fails by the policy "evidence".
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
