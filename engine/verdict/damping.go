package verdict

import (
	"math"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Penalty is the accumulated penalty for the flaps of a target: see probe.Damping. The zero Penalty is that of a target that has
// not flapped, or not recently. It can be encoded as JSON.
type Penalty struct {
	Value float64   `json:"value"`          // as of At; it has decayed since
	At    time.Time `json:"at"`             // time of the latest flap
	Since time.Time `json:"since,omitzero"` // when the damping began; zero if the target is not damped
}

// IsDamped reports whether the target is damped.
func (p Penalty) IsDamped() bool { return !p.Since.IsZero() }

// Shifted returns p with its times shifted by d, after the wall clock was set.
func (p Penalty) Shifted(d time.Duration) Penalty {
	p.At = p.At.Add(d)
	if p.IsDamped() {
		p.Since = p.Since.Add(d)
	}
	return p
}

// ValueAt returns the decayed value of a penalty at a given time. Before p.At it is p.Value.
func (p Penalty) ValueAt(d probe.Damping, at time.Time) float64 {
	elapsed := max(at.Sub(p.At), 0)
	return p.Value * math.Exp2(-float64(elapsed)/float64(d.HalfLife))
}

// AfterFlap returns a penalty after another flap. The damping begins if the penalty exceeds d.Suppress. The time of the flap may
// be before p.At if the clock was set back.
func AfterFlap(d probe.Damping, p Penalty, at time.Time) Penalty {
	p = Decayed(d, p, at)
	next := Penalty{Value: min(p.ValueAt(d, at)+probe.FlapPenalty, d.Ceiling()), At: at, Since: p.Since}
	if !next.IsDamped() && next.Value > float64(d.Suppress) {
		next.Since = at
	}
	return next
}

// Decayed returns a penalty at a given time without another flap. The damping ends when the penalty has decayed to d.Reuse. The
// penalty is removed when it has decayed to half of d.Reuse or half of FlapPenalty, whichever is less. A penalty from another
// Damping, engine or clock is adjusted to the limits of d.
func Decayed(d probe.Damping, p Penalty, at time.Time) Penalty {
	if !(p.Value > 0) {
		return Penalty{}
	}
	if p.At.After(at) {
		p.At = at
	}
	if p.Since.After(at) {
		p.Since = at
	}
	p.Value = min(p.Value, d.Ceiling())
	if p.IsDamped() && !at.Before(p.reusedAt(d)) {
		p.Since = time.Time{}
	}
	if !p.IsDamped() && !at.Before(p.forgottenAt(d)) {
		return Penalty{}
	}
	return p
}

// NextDecay returns when Decayed will change the penalty next: when the damping ends, or when the penalty is removed. It is zero
// for the zero Penalty.
func (p Penalty) NextDecay(d probe.Damping) time.Time {
	switch {
	case p.IsDamped():
		return p.reusedAt(d)
	case p.Value > 0:
		return p.forgottenAt(d)
	}
	return time.Time{}
}

// reusedAt returns when a penalty has decayed to d.Reuse, at most d.Max after its latest flap.
func (p Penalty) reusedAt(d probe.Damping) time.Time {
	return p.At.Add(min(max(d.DecayTime(p.Value, float64(d.Reuse)), 0), d.Max))
}

// forgottenAt returns when a penalty has decayed to half of d.Reuse or half of FlapPenalty, whichever is less.
func (p Penalty) forgottenAt(d probe.Damping) time.Time {
	return p.At.Add(max(d.DecayTime(p.Value, float64(min(d.Reuse, probe.FlapPenalty))/2), 0))
}
