package restart

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Budget bounds how many instances are ended since their probes fail, so that an
// overloaded network or machine does not restart everything at once. The zero
// Budget is unlimited.
type Budget struct {
	Max   int           // ends within Per; default: no such bound
	Share float64       // likewise, as a part of all units with a driver, above 0 to 1, but at least one end; default: no such bound
	Per   time.Duration // how long an end counts; required with Max or Share
}

func (b Budget) check() error {
	limited := b.Max > 0 || b.Share > 0
	switch {
	case b.Max < 0:
		return &probe.FieldError{Field: "restart_budget.max", Problem: "must be 0 or more"}
	case !(b.Share >= 0 && b.Share <= 1):
		return &probe.FieldError{Field: "restart_budget.share", Problem: "must be from 0 to 1"}
	case b.Per < 0 || limited && b.Per == 0:
		return &probe.FieldError{Field: "restart_budget.per", Problem: "must be more than 0"}
	}
	return nil
}

// limit returns how many ends are allowed within Per, at least 1, or 0 for any
// number. Of Max and Share the smaller counts.
func (b Budget) limit(units int) int {
	if b.Share <= 0 {
		return b.Max
	}
	share := max(1, int(b.Share*float64(units)))
	if b.Max > 0 {
		return min(share, b.Max)
	}
	return share
}

// account is what was taken from a budget: the times of the ends, in order, that
// still count.
type account []time.Time

// take takes one end from the budget at now and returns true, or false and when to
// ask again. Now never runs backwards.
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
