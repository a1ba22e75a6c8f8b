// Package quorum decides which engines probe a target together, and the joint result of their verdicts. It has only pure
// functions, without clock or I/O.
//
// An engine that probes a target is a vantage of it, and its verdict is a vote. Doubtful votes do not count; with fewer
// votes than a minimum nothing is decided, so that the last joint verdict stands.
//
//	rule.go    Rule: the number of vantages, and how many of them must fail
//	decide.go  Decide: from votes to a joint verdict, and whether they agree
//	choose.go  Choose: the vantages of a shard's targets
package quorum

import (
	"cmp"

	"github.com/sonde-probe/sonde/probe"
)

// Rule is how many engines probe a target, and how their votes are combined. All engines of a fleet must have the same
// rules.
type Rule struct {
	Vantages int    `hcl:"vantages,optional,nonzero" doc:"how many engines of the cluster probe the target, if it has as many" min:"2" max:"15"`
	Fail     Fail   `hcl:"fail,optional" oneof:"majority any all" doc:"how many of the votes that count must be failing for the probe to fail: more than half (while it is exactly half, the verdict stands), one, or each"`
	Spread   Spread `hcl:"spread,optional" oneof:"zone none" doc:"how engines are chosen: from as many zones as possible, and as evenly as possible, or whatever their zones are"`
	Min      int    `hcl:"min,optional,nonzero" doc:"how many votes must count for a decision; with fewer the verdict stands. At most vantages" default:"more than half of vantages" min:"1" max:"15"`
}

// The default and maximum of Rule.Vantages, whose minimum is 2; the maximum applies to Rule.Min as well. Three is the
// smallest number in which two can outvote one.
const (
	defaultVantages = 3
	maxVantages     = 15
)

// Fail is how many of the votes that count must be failing for the joint verdict to be failing.
type Fail string

// The values of Fail.
const (
	FailMajority Fail = "majority" // more than half; while it is exactly half, the last joint verdict stands
	FailAny      Fail = "any"      // one
	FailAll      Fail = "all"      // all
)

// Spread is how the engines that probe a target are chosen.
type Spread string

// The values of Spread.
const (
	SpreadZone Spread = "zone" // from as many zones as possible, and as evenly as possible
	SpreadNone Spread = "none" // regardless of their zones
)

// WithDefaults returns the rule with its defaults set.
func (r Rule) WithDefaults() Rule {
	r.Vantages = cmp.Or(r.Vantages, defaultVantages)
	r.Fail = cmp.Or(r.Fail, FailMajority)
	r.Spread = cmp.Or(r.Spread, SpreadZone)
	r.Min = cmp.Or(r.Min, r.Vantages/2+1)
	return r
}

// Check returns the errors of a rule whose defaults are set: probe.FieldErrors, or nil.
func (r Rule) Check() error {
	var wrong probe.FieldErrors
	if r.Vantages < 2 || r.Vantages > maxVantages {
		wrong.Add("vantages", "is %d; it must be from 2 to %d", r.Vantages, maxVantages)
	}
	switch r.Fail {
	case FailMajority, FailAny, FailAll:
	default:
		wrong.Add("fail", "is %.20q; it must be one of majority, any, all", string(r.Fail))
	}
	switch r.Spread {
	case SpreadZone, SpreadNone:
	default:
		wrong.Add("spread", "is %.20q; it must be one of zone, none", string(r.Spread))
	}
	if r.Min < 1 || r.Min > r.Vantages {
		wrong.Add("min", "is %d; it must be from 1 to vantages, which is %d", r.Min, r.Vantages)
	}
	return wrong.Err()
}
