package verdict_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

var defaultDamping = probe.Damping{}.WithDefaults()

// With the defaults of routers, three flaps within minutes damp a target, and the penalty is halved in a quarter of an hour.
func TestATargetIsDampedAboveSuppressAndUsedAgainBelowReuse(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const minute = time.Minute
	for _, c := range []struct {
		name   string
		flaps  []time.Duration
		at     time.Duration
		want   float64 // rounded down
		damped bool
	}{
		{"one flap", []time.Duration{0}, 0, 1000, false},
		{"two flaps at once are not above suppress", []time.Duration{0, 0}, 0, 2000, false},
		{"three flaps", []time.Duration{0, minute, 2 * minute}, 2 * minute, 2866, true},
		{"three flaps within forty minutes", []time.Duration{0, 20 * minute, 40 * minute}, 40 * minute, 1554, false},
		{"half of it after the half-life", []time.Duration{0, minute, 2 * minute}, 17 * minute, 1433, true},
		{"almost at reuse", []time.Duration{0, minute, 2 * minute}, 31 * minute, 750, true},
		{"at reuse", []time.Duration{0, minute, 2 * minute}, 32 * minute, 716, false},
		{"one that was damped is forgotten later", []time.Duration{0, minute, 2 * minute}, 46 * minute, 375, false},
		{"forgotten", []time.Duration{0, minute, 2 * minute}, 47 * minute, 0, false},
		{"as many as there may be", make([]time.Duration, 100), 0, 12000, true},
		{"as many as there may be, just before the end", make([]time.Duration, 100), time.Hour - 1, 750, true},
		{"as many as there may be, after the greatest time", make([]time.Duration, 100), time.Hour, 750, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p verdict.Penalty
			for _, at := range c.flaps {
				p = verdict.AfterFlap(defaultDamping, p, start.Add(at))
			}
			now := start.Add(c.at)
			p = verdict.Decayed(defaultDamping, p, now)
			if got := math.Floor(p.ValueAt(defaultDamping, now) + 1e-6); got != c.want || p.IsDamped() != c.damped {
				t.Errorf("the penalty is %v, damped %v; want %v, %v", got, p.IsDamped(), c.want, c.damped)
			}
		})
	}
}

// One flap suffices for a suppress limit that it exceeds. Higher limits would never be exceeded if the penalty were removed between
// flaps that follow each other immediately.
func TestEachFlapCountsWhateverTheLimits(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		suppress, reuse int32
		flaps           int
	}{{999, 900, 1}, {1000, 900, 2}, {50_000, 49_000, 51}, {100_000, 99_999, 101}} {
		d := probe.Damping{Suppress: c.suppress, Reuse: c.reuse, HalfLife: 24 * time.Hour, Max: 7 * 24 * time.Hour}
		var p verdict.Penalty
		n := 0
		for ; !p.IsDamped() && n < 200; n++ {
			p = verdict.AfterFlap(d, verdict.Decayed(d, p, now), now)
		}
		if n != c.flaps {
			t.Errorf("with suppress %d and reuse %d, %d flaps damp, want %d", c.suppress, c.reuse, n, c.flaps)
		}
	}
}

// TestThePenaltyKeepsItsLaws subjects targets with arbitrary limits to flaps at arbitrary times, some of them before the previous
// one, as after the clock was set back.
func TestThePenaltyKeepsItsLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(24, 39))
	for range 2_000 {
		damped(t, r.Int64(), randomDamping(r))
	}
}

// FuzzPenalty checks the laws for arbitrary limits.
func FuzzPenalty(f *testing.F) {
	f.Add(int64(1), int64(15*time.Minute), int64(time.Hour), int32(2000), int32(750))
	f.Fuzz(func(t *testing.T, seed, halfLife, most int64, suppress, reuse int32) {
		d := probe.Damping{HalfLife: time.Duration(halfLife), Max: time.Duration(most), Suppress: suppress, Reuse: reuse}.WithDefaults()
		if d.Check() == nil {
			damped(t, seed, d)
		}
	})
}

// randomDamping returns valid limits across their whole range.
func randomDamping(r *rand.Rand) (d probe.Damping) {
	between := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	for {
		d.HalfLife = time.Duration(between(float64(time.Second), float64(24*time.Hour)))
		d.Max = time.Duration(between(float64(time.Second), float64(7*24*time.Hour)))
		d.Suppress, d.Reuse = int32(between(1, 100_000)), int32(between(1, 100_000))
		if d.Check() == nil {
			return d
		}
	}
}

// damped subjects a target to flaps, and checks the laws for each of them and for the decay after it.
func damped(t *testing.T, seed int64, d probe.Damping) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p verdict.Penalty
	flaps, last := 0, now // since the penalty was zero; the last one
	wrong := func(law string) {
		t.Helper()
		t.Fatalf("%s: %+v at %v, after %d flaps, by %+v (seed %d)", law, p, now, flaps, d, seed)
	}
	for range 40 {
		before, beforeAt := p, now
		step := time.Duration(r.Float64() * r.Float64() * float64(d.HalfLife))
		back := r.IntN(10) == 0
		if back {
			step = -step
		}
		if now = now.Add(step); back {
			last = now // by the new clock, it may take as long again
		}
		if isFlap := r.IntN(2) == 0; isFlap {
			p = verdict.AfterFlap(d, p, now)
			flaps, last = flaps+1, now
			switch {
			case p.ValueAt(d, now) < min(probe.FlapPenalty, d.Ceiling()):
				wrong("a flap adds less than it should")
			case p.IsDamped() != (p.Value > float64(d.Suppress)) && !before.IsDamped():
				wrong("a flap damps when the penalty exceeds suppress")
			}
		} else {
			p = verdict.Decayed(d, p, now)
			switch {
			case p.IsDamped() && !before.IsDamped():
				wrong("only a flap damps")
			case !back && p.ValueAt(d, now) > before.ValueAt(d, beforeAt):
				wrong("the penalty only decays")
			case verdict.Decayed(d, p, now) != p:
				wrong("what has decayed does not decay at the same time again")
			}
		}
		if p == (verdict.Penalty{}) {
			flaps = 0
			continue
		}
		next := p.NextDecay(d)
		switch {
		case p.Value > d.Ceiling():
			wrong("the penalty never exceeds the ceiling")
		case p.Value > float64(flaps)*probe.FlapPenalty:
			wrong("the penalty is not more than the flaps have added")
		case p.IsDamped() && now.Sub(last) >= d.Max:
			wrong("nothing is damped for longer than max after its last flap")
		case p.IsDamped() && next.Sub(p.At) > d.Max:
			wrong("damping does not end after max")
		case p.IsDamped() && p.ValueAt(d, now) < float64(d.Reuse)*(1-1e-9):
			wrong("what has decayed to reuse is not damped")
		case !next.After(now):
			wrong("the next time is over")
		case p.IsDamped() && verdict.Decayed(d, p, next).IsDamped(), !p.IsDamped() && verdict.Decayed(d, p, next) != verdict.Penalty{}:
			wrong("nothing happens at the next time")
		}
	}
}

// A penalty in a state file that is from another clock, was subject to other limits, or is invalid, is adjusted to the current
// limits.
func TestARestoredPenaltyGetsWithinItsLimits(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, p := range map[string]verdict.Penalty{
		"of the future":    {Value: 5000, At: now.Add(1000 * time.Hour), Since: now.Add(999 * time.Hour)},
		"much too great":   {Value: math.MaxFloat64, At: now, Since: now},
		"infinite":         {Value: math.Inf(1), At: now, Since: now},
		"not damped since": {Value: 5000, At: now},
	} {
		got := verdict.Decayed(defaultDamping, p, now)
		if got.At.After(now) || got.Since.After(now) || got.Value > defaultDamping.Ceiling() || got.NextDecay(defaultDamping).Sub(now) > 2*time.Hour {
			t.Errorf("%s: %+v", name, got)
		}
		if left := verdict.Decayed(defaultDamping, got, now.Add(2*time.Hour)); left != (verdict.Penalty{}) {
			t.Errorf("%s: two hours later there is still %+v", name, left)
		}
	}
	for name, value := range map[string]float64{"negative": -1, "not a number": math.NaN(), "zero": 0} {
		if got := verdict.Decayed(defaultDamping, verdict.Penalty{Value: value, At: now, Since: now}, now); got != (verdict.Penalty{}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A damped target is never in trouble and gets no requests. A target that is absent, has ended, or is explained by another one
// keeps its state.
func TestADampedTargetIsNotInTroubleAndGetsNoRequests(t *testing.T) {
	kept := map[probe.TargetState]bool{
		probe.StateAbsent: true, probe.StateCannotStart: true, probe.StateExited: true, probe.StateUnreachable: true,
		probe.StateDamped: false, probe.StatePaused: true, probe.StateStopped: true, probe.StateCompleted: true,
	}
	for s := range probe.TargetState(probe.TargetStates) {
		want := probe.StateDamped
		if kept[s] {
			want = s
		}
		if got, _ := (verdict.Conditions{Damped: true}).Fold(probe.Running, s, probe.GatewayReady); got != want {
			t.Errorf("of a damped target %v is %v, want %v", s, got, want)
		}
		for reason, asked := range map[probe.Reason]bool{"": false, probe.ReasonCrashLoop: false, probe.ReasonOperatorRestart: true, probe.ReasonOperatorStop: true} {
			in := &probe.Instance{Phase: probe.Running, Reason: reason}
			if got := verdict.IsFlap(in, s); got != (want == probe.StateDamped && !asked) {
				t.Errorf("a target that gets %v, for the reason %q: flap is %v", s, reason, got)
			}
		}
	}
	for g := range probe.GatewayState(probe.GatewayStates) {
		want := probe.GatewayDown
		if g == probe.GatewayDraining {
			want = g
		}
		if _, got := (verdict.Conditions{Damped: true}).Fold(probe.Running, probe.StateReady, g); got != want {
			t.Errorf("to gateways a damped target that is %v is %v, want %v", g, got, want)
		}
	}
}
