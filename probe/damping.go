package probe

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// FlapPenalty is added to the penalty of a target each time the target flaps, that is, ceases to be ready. Damping.Suppress and
// Damping.Reuse are in the same unit, which routers also use.
const FlapPenalty = 1000

// Damping configures flap damping for a target, by the method of RFC 2439 for routes. Each flap adds FlapPenalty to a penalty
// that decays by half every HalfLife. The target is damped from when the penalty exceeds Suppress until it has decayed to Reuse.
// The zero Damping disables damping; otherwise a zero field means its default.
//
// The hcl tags name the arguments of the damping block of a target.
type Damping struct {
	HalfLife time.Duration `hcl:"half_life,optional,nonzero" doc:"time in which the penalty decays to half of it" default:"15m" min:"1s" max:"24h"`
	Suppress int32         `hcl:"suppress,optional,nonzero" doc:"the target is damped once its penalty is greater; a flap adds 1000" default:"2000" min:"2" max:"100000"`
	Reuse    int32         `hcl:"reuse,optional,nonzero" doc:"the target is no longer damped once its penalty has decayed to this; less than suppress" default:"750" min:"1" max:"99999"`
	Max      time.Duration `hcl:"max,optional,nonzero" doc:"how long the target stays damped after its last flap, at most: the penalty is never greater than what decays to reuse in that time" default:"60m" min:"1s" max:"168h"`
}

// Defaults and bounds of a Damping. Most routers have the same defaults.
const (
	defaultHalfLife  = 15 * time.Minute
	defaultSuppress  = 2000
	defaultReuse     = 750
	defaultMaxDamped = time.Hour

	minDampingTime = time.Second        // of HalfLife and Max
	maxHalfLife    = 24 * time.Hour     // of HalfLife
	maxDampingTime = 7 * 24 * time.Hour // of Max
	maxSuppress    = 100_000            // of Suppress; Reuse is less
)

// WithDefaults returns d with every zero field set to its default.
func (d Damping) WithDefaults() Damping {
	d.HalfLife = cmp.Or(d.HalfLife, defaultHalfLife)
	d.Suppress = cmp.Or(d.Suppress, defaultSuppress)
	d.Reuse = cmp.Or(d.Reuse, defaultReuse)
	d.Max = cmp.Or(d.Max, defaultMaxDamped)
	return d
}

// Ceiling returns the maximum penalty: the one that decays to Reuse in Max. It may be infinite.
func (d Damping) Ceiling() float64 {
	return float64(d.Reuse) * math.Exp2(float64(d.Max)/float64(d.HalfLife))
}

// Check validates a Damping whose defaults are set. It returns FieldErrors with every invalid field under its HCL name, or nil.
func (d Damping) Check() error {
	var wrong FieldErrors
	duration := func(field string, is, most time.Duration) {
		if is < minDampingTime || is > most {
			wrong.Add(field, "is %s; it must be from %v to %s", FormatDuration(is), minDampingTime, FormatDuration(most))
		}
	}
	limit := func(field string, is, least, most int32) {
		if is < least || is > most {
			wrong.Add(field, "is %d; it must be from %d to %d", is, least, most)
		}
	}
	duration("half_life", d.HalfLife, maxHalfLife)
	limit("suppress", d.Suppress, 2, maxSuppress)
	limit("reuse", d.Reuse, 1, maxSuppress-1)
	duration("max", d.Max, maxDampingTime)
	switch {
	case len(wrong) > 0:
	case d.Reuse >= d.Suppress:
		wrong.Add("reuse", "is %d; it must be less than suppress, which is %d", d.Reuse, d.Suppress)
	case d.Ceiling() <= float64(d.Suppress):
		wrong = append(wrong, &FieldError{
			Field:   "max",
			Problem: fmt.Sprintf("is %v, so the target would never be damped: the penalty cannot exceed %.0f, but suppress is %d", d.Max, d.Ceiling(), d.Suppress),
			Hint:    fmt.Sprintf("use more than %v, a shorter half_life, or a lower suppress", (d.DecayTime(float64(d.Suppress), float64(d.Reuse)) + time.Second - 1).Truncate(time.Second)),
		})
	}
	return wrong.Err()
}

// DecayTime returns the time in which a penalty decays from from to to, which must be greater than 0.
func (d Damping) DecayTime(from, to float64) time.Duration {
	return time.Duration(math.Ceil(float64(d.HalfLife) * math.Log2(from/to)))
}
