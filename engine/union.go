package engine

import (
	"context"
	"iter"
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Union is an engine together with another one that shows what other engines have found out: readers have one source of the
// targets of both. A target may be in both while it moves from one to the other, if it is always in one of them: it is as in the
// first one, unless that has no verdicts of it, or no probes any more.
type Union struct{ own, others *Engine }

// NewUnion returns the Union of an engine and of another one that shows targets of others.
func NewUnion(own, others *Engine) *Union { return &Union{own, others} }

// Target is Engine.Target for the targets of both. It looks into the first engine once more after the other: a target that moves
// is added to the one before it is removed from the other.
func (u *Union) Target(name string) (TargetStatus, bool) {
	own, isOwn := u.own.Target(name)
	if isOwn && own.hasVerdicts() {
		return own, true
	}
	other, isOther := u.others.Target(name)
	if isOther && other.hasVerdicts() {
		return other, true
	}
	if own, isOwn = u.own.Target(name); isOwn {
		return own, true
	}
	return other, isOther
}

// hasVerdicts reports whether a target is decided by probes: in an engine that has just got it, or is losing it, it is
// not. While an engine gets it, its verdicts may be read before its instance is.
func (st *TargetStatus) hasVerdicts() bool {
	return len(st.Probes) > 0 && st.Gateway != probe.GatewayUndecided && st.Instance.Phase != probe.Absent
}

// IsOther reports whether only the other engine has a target.
func (u *Union) IsOther(name string) bool {
	if own, _ := u.own.registry.target(name); own != nil {
		return false
	}
	other, _ := u.others.registry.target(name)
	return other != nil
}

// Select is Engine.Select for the targets of both.
func (u *Union) Select(ctx context.Context, f Filter) iter.Seq[TargetStatus] {
	return func(yield func(TargetStatus) bool) {
		nextOther, stop := iter.Pull(u.others.Select(ctx, f))
		defer stop()
		other, hasOther := nextOther()
		for own := range u.own.Select(ctx, f) {
			for ; hasOther && other.Target <= own.Target; other, hasOther = nextOther() {
				if other.Target == own.Target {
					if !own.hasVerdicts() && other.hasVerdicts() {
						own = other
					}
				} else if !yield(other) {
					return
				}
			}
			if !yield(own) {
				return
			}
		}
		for ; hasOther && yield(other); other, hasOther = nextOther() {
		}
	}
}

// Count is Engine.Count for the targets of both. One that moves may be counted twice.
func (u *Union) Count(ctx context.Context, f Filter) int {
	return u.own.Count(ctx, f) + u.others.Count(ctx, f)
}

// States is Engine.States for the targets of both, as Count counts them.
func (u *Union) States() TargetStates {
	all := u.own.States()
	for state, n := range u.others.States() {
		all[state] += n
	}
	return all
}

// Subscribe is Engine.Subscribe for the probes of both, each as Target has it. Those that exist come in no order.
func (u *Union) Subscribe() *Subscription {
	sub := u.own.subscribe(nil, false)
	sub.status = u.status
	u.others.subscribe(sub, false)
	return sub
}

// status returns a probe of a target as Target has it, and whether there is one.
func (u *Union) status(id probe.ID) (st Status, ok bool) {
	t, _ := u.Target(id.Target)
	i := slices.IndexFunc(t.Probes, func(p Status) bool { return p.ID == id })
	if i < 0 {
		return st, false
	}
	return t.Probes[i], true
}

// SubscribeTargets is Engine.SubscribeTargets for the targets of both. Those that exist come in no order.
func (u *Union) SubscribeTargets() *TargetSubscription {
	changes := u.own.subscribeTargets(nil)
	u.others.subscribeTargets(changes)
	return &TargetSubscription{changes, u.Target}
}

// Health is that of the first engine.
func (u *Union) Health() Health { return u.own.Health() }

// Doubts is Engine.Doubts of the first engine.
func (u *Union) Doubts(id probe.ID) bool { return u.own.Doubts(id) }

// Stats are those of the first engine.
func (u *Union) Stats() Stats { return u.own.Stats() }

// Records are those of the first engine.
func (u *Union) Records() Records { return u.own.Records() }
