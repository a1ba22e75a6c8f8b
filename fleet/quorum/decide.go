package quorum

import (
	"slices"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Vote is what one vantage says about one probe.
type Vote struct {
	Vantage  string        // the name of the engine
	Instance string        // of the target, which the vote is about
	Verdict  probe.Verdict // Undecided: the vantage does not know
	Doubtful bool          // the vantage doubts its own verdicts
	Until    time.Time     // from then on the vote is stale; zero: it is fresh as long as it exists
}

// counts reports whether a vote about an instance counts at a time.
func (v Vote) counts(instance string, now time.Time) bool {
	isFresh := v.Until.IsZero() || now.Before(v.Until)
	return isFresh && !v.Doubtful && v.Verdict != probe.Undecided && v.Instance == instance
}

// Agreement says whether the votes that count say the same.
type Agreement string

// The agreements.
const (
	AgreementNone Agreement = "none" // no vote counts
	Unanimous     Agreement = "unanimous"
	Gray          Agreement = "gray" // some are passing, and some failing: the target works for some of its users
)

// Decision is what votes add up to.
type Decision struct {
	Verdict   probe.Verdict // the joint verdict: the last one if the votes decide nothing
	Decided   bool          // the votes have decided: as many count as the rule wants, and they are no tie
	Agreement Agreement     // whether the votes that count agree; also if they decide nothing

	// The vantages by what they say, sorted. The votes of Ignored do not count: they are stale, doubtful,
	// undecided, or about another instance.
	Passing, Failing, Ignored []string

	Again time.Time // when a vote that counts becomes stale, so that Decide may return something else; zero: never
}

// Decide returns what votes about a probe add up to at a time. It needs a rule whose defaults are set, at
// most one vote of each vantage, the instance of the target that now runs, and the last joint verdict, which
// is Undecided before the first. The order of votes does not matter.
func Decide(r Rule, votes []Vote, instance string, last probe.Verdict, now time.Time) Decision {
	d := Decision{Verdict: last, Agreement: AgreementNone}
	for _, v := range votes {
		if !v.counts(instance, now) {
			d.Ignored = append(d.Ignored, v.Vantage)
			continue
		}
		if v.Verdict == probe.Failing {
			d.Failing = append(d.Failing, v.Vantage)
		} else {
			d.Passing = append(d.Passing, v.Vantage)
		}
		if !v.Until.IsZero() && (d.Again.IsZero() || v.Until.Before(d.Again)) {
			d.Again = v.Until
		}
	}
	for _, names := range [][]string{d.Passing, d.Failing, d.Ignored} {
		slices.Sort(names)
	}
	passing, failing := len(d.Passing), len(d.Failing)
	switch {
	case passing > 0 && failing > 0:
		d.Agreement = Gray
	case passing+failing > 0:
		d.Agreement = Unanimous
	}
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
