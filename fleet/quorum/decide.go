package quorum

import (
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Vote is what one vantage says about one probe.
type Vote struct {
	Vantage  string        // the name of the engine
	Instance string        // of the target, which the vote is about
	Verdict  probe.Verdict // Undecided: the vantage does not know
	Doubtful bool          // the vantage doubts its own verdicts
}

// Decision is what votes add up to.
type Decision struct {
	Verdict probe.Verdict // the joint verdict: the last one if the votes decide nothing
	Decided bool          // the votes have decided: as many count as the rule wants, and they are no tie

	// The vantages by what they say, sorted. The votes of Ignored do not count: they are doubtful, undecided, or about
	// another instance.
	Passing, Failing, Ignored []string
}

// IsGray reports whether votes that count differ: the target works for some of its users. They may decide nothing.
func (d Decision) IsGray() bool { return len(d.Passing) > 0 && len(d.Failing) > 0 }

// Decide returns what votes about a probe add up to. It needs a rule whose defaults are set, at most one vote of each
// vantage, the instance of the target that now runs, and the last joint verdict, which is Undecided before the first. The
// order of votes does not matter.
func Decide(r Rule, votes []Vote, instance string, last probe.Verdict) Decision {
	d := Decision{Verdict: last}
	for _, v := range votes {
		switch {
		case v.Doubtful || v.Verdict == probe.Undecided || v.Instance != instance:
			d.Ignored = append(d.Ignored, v.Vantage)
		case v.Verdict == probe.Failing:
			d.Failing = append(d.Failing, v.Vantage)
		default:
			d.Passing = append(d.Passing, v.Vantage)
		}
	}
	for _, names := range [][]string{d.Passing, d.Failing, d.Ignored} {
		slices.Sort(names)
	}
	passing, failing := len(d.Passing), len(d.Failing)
	if passing+failing < max(r.Min, 1) {
		return d
	}
	if joint := r.joint(passing, failing); joint != probe.Undecided {
		d.Verdict, d.Decided = joint, true
	}
	return d
}

// joint returns what at least one vote decides, Undecided for a tie.
func (r Rule) joint(passing, failing int) probe.Verdict {
	isFailing := failing > passing
	switch {
	case r.Fail == FailAny:
		isFailing = failing > 0
	case r.Fail == FailAll:
		isFailing = passing == 0
	case failing == passing:
		return probe.Undecided
	}
	if isFailing {
		return probe.Failing
	}
	return probe.Passing
}
