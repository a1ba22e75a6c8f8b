package quorum

import (
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Vote is the vote of one vantage on one probe.
type Vote struct {
	Vantage  string        // the name of the engine
	Instance string        // the target's instance that the vote is about
	Verdict  probe.Verdict // Undecided: the vantage has no verdict
	Doubtful bool          // the vantage doubts its own verdicts
}

// Decision is the result of votes.
type Decision struct {
	Verdict probe.Verdict // the joint verdict: the last one if the votes decide nothing
	Decided bool          // the votes have decided: enough of them count, and there is no tie

	// The vantages by their votes, sorted. Votes of Ignored do not count: they are doubtful, undecided, or about another
	// instance.
	Passing, Failing, Ignored []string
}

// IsGray reports whether the votes that count disagree, since the target works only for some of its users. The votes
// need not decide anything.
func (d Decision) IsGray() bool { return len(d.Passing) > 0 && len(d.Failing) > 0 }

// Decide returns the result of the votes on a probe. The rule must have its defaults set, each vantage has at most one
// vote, instance is the target's running instance, and last is the last joint verdict, Undecided before the first. The
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

// joint returns the verdict of at least one vote, or Undecided for a tie.
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
