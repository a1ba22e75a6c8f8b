package group

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// DefaultWeight is the default of Rule.Weight.
const DefaultWeight = 100

// defaultMaxEjected is the default of Rule.MaxEjected. Envoy's max_ejection_percent is 10% by default, but there an
// ejection lasts for a fixed time, and here until an attempt succeeds.
const defaultMaxEjected probe.Share = 0.5

// slowSteps is the number of steps in which the weight of a member grows in its slow start.
const slowSteps = 10

// plan selects the members in rotation in addition to those that take requests.
type plan struct {
	all   bool            // all members that are not draining
	extra map[string]bool // members that keep the quorum, or that are ejected beyond the limit
}

func (p plan) equal(q plan) bool { return p.all == q.all && maps.Equal(p.extra, q.extra) }

// actingState returns the state that decides whether a member is in rotation, given the acting state before and the current
// state. Uncertain states change nothing: those of an undecided member, of one that is down for a reason that may be the
// engine's own, and of all members while the engine is isolated.
func actingState(before, now probe.GatewayState, doubtful, isolated bool) probe.GatewayState {
	if isolated || now == probe.GatewayUndecided || now == probe.GatewayDown && doubtful {
		return before
	}
	return now
}

// panics reports whether so few members take requests that all are used. Draining members do not
// count, since they are about to exit.
func (r *Rule) panics(acting Counts) bool {
	rest := acting.Total() - acting[probe.GatewayDraining]
	return rest > 0 && float64(acting.Serving()) < float64(r.Panic)*float64(rest)
}

// fill returns members that are put in rotation although they take no requests: the members ejected beyond Rule.MaxEjected
// and then, up to the quorum, draining members and those that went down last.
func (r *Rule) fill(acting Counts, ejected int, l members) map[string]bool {
	most := cmp.Or(r.MaxEjected, defaultMaxEjected).Of(acting.Serving() + ejected)
	beyond := max(ejected-most, 0)
	missing := max(r.Quorum-acting.Serving(), beyond)
	if missing <= 0 {
		return nil
	}
	var rest []*Member
	for m := range l.from("") {
		if !m.acting.TakesRequests() && !m.ZeroWeight {
			rest = append(rest, m)
		}
	}
	extra := map[string]bool{}
	slices.SortFunc(rest, func(a, b *Member) int {
		return cmp.Or(one(b.ejected)-one(a.ejected), lastToGo(a, b))
	})
	for _, m := range rest[:beyond] {
		extra[m.Target] = true
	}
	rest = rest[beyond:]
	slices.SortFunc(rest, func(a, b *Member) int {
		return cmp.Or(one(b.acting == probe.GatewayDraining)-one(a.acting == probe.GatewayDraining), lastToGo(a, b))
	})
	for _, m := range rest[:min(missing-beyond, len(rest))] {
		extra[m.Target] = true
	}
	return extra
}

// lastToGo orders members by the time at which they left rotation, latest first.
func lastToGo(a, b *Member) int {
	return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.Target, b.Target))
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// place returns whether a member is in rotation, and its weight.
func (r *Rule) place(m *Member, p plan, now time.Time) (inRotation bool, weight int) {
	switch {
	case m.ZeroWeight:
		return false, 0
	case p.all && m.acting != probe.GatewayDraining, p.extra[m.Target]:
		return true, m.full
	case !m.acting.TakesRequests():
		return false, 0
	case len(p.extra) > 0: // down members have their full weights, and would otherwise get most requests
		return true, m.full
	}
	w := float64(m.full)
	if m.acting == probe.GatewayDegraded && r.DegradedWeight > 0 {
		w *= float64(r.DegradedWeight)
	}
	return true, max(int(math.Round(w*slowShare(m.slowSince, now, r.SlowStart))), 1)
}

// slowShare returns the part of its weight that a member has whose slow start began at the given time. It grows in
// slowSteps equal steps; the first is not 0.
func slowShare(began, now time.Time, takes time.Duration) float64 {
	passed := now.Sub(began)
	if began.IsZero() || passed >= takes {
		return 1
	}
	return float64(1+slowSteps*max(passed, 0)/takes) / slowSteps
}

// fullWeight returns the weight of a ready member: the value of its label, or the weight of the group.
func (r *Rule) fullWeight(labels map[string]string) int {
	if text := labels[r.WeightLabel]; text != "" && r.WeightLabel != "" {
		if n, err := strconv.Atoi(text); err == nil && n >= 0 && n <= probe.MaxWeight {
			return n
		}
	}
	return cmp.Or(r.Weight, DefaultWeight)
}
