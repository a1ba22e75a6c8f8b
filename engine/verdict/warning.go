package verdict

import "github.com/sonde-probe/sonde/probe"

// minClean is the minimum number of consecutive successes without a warning after which a probe no longer warns.
const minClean = 3

// Warnings is the state derived from the attempts of a probe that passed with a warning. Failures do not affect it: they are
// counted in the verdict. The zero Warnings is that of a probe without warnings.
type Warnings struct {
	Policy probe.Policy // policy by which Run is counted
	Warns  bool         // the probe warns
	Run    int32        // consecutive outcomes that contradict Warns; with the policy "evidence" as State.Run
}

// After returns the warnings after another attempt. A probe warns after FailureThreshold consecutive warnings. It ceases to warn
// after as many consecutive successes without a warning, but at least three, and at least SuccessThreshold. With the policy
// "evidence", a warning adds to a score and a success subtracts from it, as failures and successes do for the verdict.
func (w Warnings) After(r *probe.Rule, o probe.Outcome) Warnings {
	if o != probe.Success && o != probe.Warning {
		return w
	}
	if w.Policy != r.Policy || r.Policy == probe.PolicyEvidence && w.Warns && w.Run == 0 { // the latter was restored
		w.Policy, w.Run = r.Policy, 0
		if w.Warns && r.Policy == probe.PolicyEvidence {
			w.Run = mostEvidence
		}
	}
	if r.Policy == probe.PolicyEvidence {
		s := State{Policy: r.Policy, Run: w.Run}
		s.weigh(o == probe.Success)
		w.Run, w.Warns = s.Run, s.alarmed()
		return w
	}
	if w.Warns != (o == probe.Success) {
		w.Run = 0
		return w
	}
	enough := r.FailureThreshold
	if w.Warns {
		enough = max(minClean, r.FailureThreshold, r.SuccessThreshold)
	}
	if w.Run = increment(w.Run); w.Run >= enough {
		w.Run, w.Warns = 0, !w.Warns
	}
	return w
}
