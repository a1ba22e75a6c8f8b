package restart

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Budget limits how many instances are restarted because their probes fail, so that
// an overloaded network or machine does not restart everything at once. The zero
// Budget is unlimited.
type Budget struct {
	Max   int           `hcl:"max,optional,nonzero" doc:"restarts within per" default:"unlimited" min:"1"`
	Share probe.Share   `hcl:"share,optional" doc:"restarts within per, as a percentage (\"10%\") of all targets that can be restarted, but at least one" default:"unlimited"`
	Per   time.Duration `hcl:"per,nonzero" doc:"how long a restart counts"`
}

func (b Budget) check() error {
	var wrong probe.FieldErrors
	limited := b.Max != 0 || b.Share != 0
	if b.Max < 0 {
		wrong.Add("restart_budget.max", "must be 1 or more")
	}
	if !(b.Share >= 0 && b.Share <= 1) {
		wrong.Add("restart_budget.share", "must be from 0 to 1")
	}
	if b.Per < 0 || limited && b.Per == 0 {
		wrong.Add("restart_budget.per", "must be greater than 0")
	}
	if b.Per > 0 && !limited {
		wrong.Add("restart_budget", `needs max or share: { max = 3, per = "1m" } or { share = "10%%", per = "1m" }`)
	}
	return wrong.Err()
}

// limit returns how many restarts are allowed within Per: the smaller of Max and
// Share, or 0 for any number.
func (b Budget) limit(units int) int {
	if b.Share <= 0 {
		return b.Max
	}
	share := max(1, b.Share.Of(units))
	if b.Max > 0 {
		return min(share, b.Max)
	}
	return share
}

// account holds the times of the restarts that still count, in order.
type account []time.Time

// take takes one restart from the budget at now and returns true, or false and when
// to ask again. Calls must not go back in time.
func (a account) take(b Budget, units int, now time.Time) (account, time.Time, bool) {
	limit := b.limit(units)
	if limit == 0 {
		return nil, now, true
	}
	for len(a) > 0 && !now.Before(a[0].Add(b.Per)) {
		a = a[1:]
	}
	if len(a) >= limit {
		return a, a[len(a)-limit].Add(b.Per), false
	}
	return append(a, now), now, true
}
