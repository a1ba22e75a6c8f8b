package verdict

import "github.com/sonde-probe/sonde/probe"

// minClean is how many successes without a warning in a row end the warnings of a probe, at the least.
const minClean = 3

// Warnings are what is remembered of the attempts of a probe that have passed with a warning. Failures neither count nor end a
// run: the verdict counts them. The zero Warnings has seen none.
type Warnings struct {
	Policy probe.Policy // by which Run is counted
	Warns  bool         // there were enough
	Run    int32        // outcomes in a row that are against Warns; with the policy "evidence" as State.Run
}

// After returns the warnings after one more attempt. A probe warns after as many warnings in a row as failures would make it
// fail, and until as many successes without one, but at least three, and at least as many as make it pass. With the policy
// "evidence" a warning adds to a score and a success takes off it, as failures and successes do for the verdict.
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
