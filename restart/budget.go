package restart

import (
	"fmt"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Budget limits the number of targets that are restarted because their probes fail, so that an overloaded network or
// machine, or a wrong configuration, does not restart everything at once. A target that is restarted again within Per
// is not counted twice: its back-off limits such restarts. The zero Budget is unlimited.
type Budget struct {
	Max   int           `hcl:"max,optional,nonzero" doc:"targets restarted within per" default:"unlimited" min:"1"`
	Share probe.Share   `hcl:"share,optional" doc:"targets restarted within per, as a percentage (\"10%\") of all targets that can be restarted, but at least min; \"100%\" limits nothing" default:"unlimited"`
	Min   int           `hcl:"min,optional,nonzero" doc:"what share allows at least; needs share" default:"1" min:"1"`
	Per   time.Duration `hcl:"per,nonzero" doc:"how long a target counts that was restarted"`
}

// DefaultBudget is the Budget of an engine whose configuration sets none: a quarter, like maxUnavailable of a
// Kubernetes Deployment, but at least three targets.
var DefaultBudget = Budget{Share: 0.25, Min: 3, Per: 5 * time.Minute}

func (b Budget) check() error {
	var wrong probe.FieldErrors
	limited := b.Max != 0 || b.Share != 0
	if b.Max < 0 {
		wrong.Add("restart_budget.max", "must be 1 or more")
	}
	if !(b.Share >= 0 && b.Share <= 1) {
		wrong.Add("restart_budget.share", "must be from 0 to 1")
	}
	if b.Min < 0 {
		wrong.Add("restart_budget.min", "must be 1 or more")
	} else if b.Min > 0 && b.Share == 0 {
		wrong.Add("restart_budget.min", "needs share")
	}
	if b.Per < 0 || limited && b.Per == 0 {
		wrong.Add("restart_budget.per", "must be greater than 0")
	}
	if b.Per > 0 && !limited {
		wrong.Add("restart_budget", `needs max or share: { max = 3, per = "1m" } or { share = "10%%", per = "1m" }`)
	}
	return wrong.Err()
}

// limit returns the maximum number of targets that may be restarted within Per: the smaller of Max and Share, or 0 for
// no limit.
func (b Budget) limit(units int) int {
	if b.Share <= 0 {
		return b.Max
	}
	share := max(1, b.Min, b.Share.Of(units))
	if b.Max > 0 {
		return min(share, b.Max)
	}
	return share
}

// detail returns the text that explains why a restart waits for the budget.
func (b Budget) detail(units int) string {
	return fmt.Sprintf("restart_budget allows restarts of %d targets in %s", b.limit(units), probe.Brief(b.Per))
}

// charge is a target that was restarted and counts against the budget.
type charge struct {
	target string
	at     time.Time
}

// account holds the charges by time, at most one per target.
type account []charge

// take charges a restart to the budget at now and returns true. If the budget is exhausted, it returns false and the
// time when to try again. The target must not be charged already, and now must not decrease between calls.
func (a account) take(b Budget, target string, units int, now time.Time) (account, time.Time, bool) {
	limit := b.limit(units)
	if limit == 0 {
		return nil, now, true
	}
	for len(a) > 0 && !now.Before(a[0].at.Add(b.Per)) {
		a = a[1:]
	}
	if len(a) >= limit {
		return a, a[len(a)-limit].at.Add(b.Per), false
	}
	return append(a, charge{target, now}), now, true
}

// restore adds a target that was charged at the given time.
func (a account) restore(target string, at time.Time) account {
	a = a.remove(target)
	n, _ := slices.BinarySearchFunc(a, at, func(c charge, at time.Time) int { return c.at.Compare(at) })
	return slices.Insert(a, n, charge{target, at})
}

// remove removes a target.
func (a account) remove(target string) account {
	return slices.DeleteFunc(a, func(c charge) bool { return c.target == target })
}
