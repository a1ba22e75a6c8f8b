package engine

import (
	"context"
	"iter"
	"slices"

	"github.com/sonde-probe/sonde/probe"
)

// Union combines an engine with a second one that mirrors other engines, so that readers have a single source for the targets of
// both. A target may be in both while it moves from one to the other, provided that it is always in at least one of them. The
// first engine takes precedence, unless it has no verdicts for the target, or no probes any more.
type Union struct{ own, others *Engine }

// NewUnion returns the Union of an engine and of a second one that mirrors other engines.
func NewUnion(own, others *Engine) *Union { return &Union{own, others} }

// Target is Engine.Target for the targets of both engines. After the second engine it checks the first one again, since a moving
// target is added to one engine before it is removed from the other.
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

// hasVerdicts reports whether the status of a target is based on probes. It is not in an engine that has just received the
// target, or is losing it. While an engine receives a target, its verdicts may be visible before its instance.
func (st *TargetStatus) hasVerdicts() bool {
	return len(st.Probes) > 0 && st.Gateway != probe.GatewayUndecided && st.Instance.Phase != probe.Absent
}

// IsOther reports whether only the second engine has the target.
func (u *Union) IsOther(name string) bool {
	if own, _ := u.own.registry.target(name); own != nil {
		return false
	}
	other, _ := u.others.registry.target(name)
	return other != nil
}

// Select is Engine.Select for the targets of both engines.
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

// Count is Engine.Count for the targets of both engines. A moving target may be counted twice.
func (u *Union) Count(ctx context.Context, f Filter) int {
	return u.own.Count(ctx, f) + u.others.Count(ctx, f)
}

// States is Engine.States for the targets of both engines. A moving target may be counted twice.
func (u *Union) States() TargetStates {
	all := u.own.States()
	for state, n := range u.others.States() {
		all[state] += n
	}
	return all
}

// Subscribe is Engine.Subscribe for the probes of both engines, with the status as in Target. Existing probes are delivered in no
// particular order.
func (u *Union) Subscribe() *Subscription {
	sub := u.own.subscribe(nil, false)
	sub.status = u.status
	u.others.subscribe(sub, false)
	return sub
}

// status returns the status of a probe as in Target, and whether the probe exists.
func (u *Union) status(id probe.ID) (st Status, ok bool) {
	t, _ := u.Target(id.Target)
	i := slices.IndexFunc(t.Probes, func(p Status) bool { return p.ID == id })
	if i < 0 {
		return st, false
	}
	return t.Probes[i], true
}

// SubscribeTargets is Engine.SubscribeTargets for the targets of both engines. Existing targets are delivered in no particular
// order.
func (u *Union) SubscribeTargets() *TargetSubscription {
	changes := u.own.subscribeTargets(nil)
	u.others.subscribeTargets(changes)
	return &TargetSubscription{changes, u.Target}
}

// Health returns the health of the first engine.
func (u *Union) Health() Health { return u.own.Health() }

// Doubts is Engine.Doubts of the first engine.
func (u *Union) Doubts(id probe.ID) bool { return u.own.Doubts(id) }

// Stats returns the statistics of the first engine.
func (u *Union) Stats() Stats { return u.own.Stats() }

// Records returns the Records of the first engine.
func (u *Union) Records() Records { return u.own.Records() }
