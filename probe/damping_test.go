package probe_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

func TestDampingDefaultsAreThoseOfRouters(t *testing.T) {
	d := probe.Damping{}.WithDefaults()
	if err := d.Check(); err != nil {
		t.Error(err)
	}
	if want := (probe.Damping{HalfLife: 15 * time.Minute, Suppress: 2000, Reuse: 750, Max: time.Hour}); d != want {
		t.Errorf("the defaults are %+v, want %+v", d, want)
	}
	if got := d.Ceiling(); got != 12000 {
		t.Errorf("the ceiling is %v, want 12000", got)
	}
	some := probe.Damping{HalfLife: time.Minute, Suppress: 1500, Reuse: 500, Max: 5 * time.Minute}
	if got := some.WithDefaults(); got != some {
		t.Errorf("with its defaults %+v is %+v", some, got)
	}
}

func TestDampingIsChecked(t *testing.T) {
	for _, c := range []struct {
		d    probe.Damping
		want string // in the error; "" for no error
	}{
		{probe.Damping{}, ""},
		{probe.Damping{HalfLife: time.Second, Max: 7 * 24 * time.Hour, Suppress: 100_000, Reuse: 1}, ""},
		{probe.Damping{HalfLife: time.Second - 1}, "half_life is 999.999999ms; it must be from 1s to 1d"},
		{probe.Damping{HalfLife: 24*time.Hour + 1}, "half_life is 24h0m0.000000001s"},
		{probe.Damping{HalfLife: math.MinInt64}, "half_life is -"},
		{probe.Damping{Max: time.Millisecond}, "max is 1ms; it must be from 1s to 7d"},
		{probe.Damping{Max: math.MaxInt64}, "max is 2562047h"},
		{probe.Damping{Suppress: -1, Reuse: 100_001}, "suppress is -1; it must be from 2 to 100000; reuse is 100001; it must be from 1 to 99999"},
		{probe.Damping{Suppress: 2, Reuse: 1}, ""},
		{probe.Damping{Suppress: 750}, "reuse is 750; it must be less than suppress, which is 750"},
		{probe.Damping{Max: 15 * time.Minute}, "max is 15m0s, so the target would never be damped: the penalty cannot exceed 1500, but suppress is 2000; use more than 21m14s"},
		{probe.Damping{HalfLife: time.Second, Max: time.Second}, "use more than 2s"}, // the decay takes 1.42 s
		{probe.Damping{Suppress: 3000, Max: 30 * time.Minute}, "the penalty cannot exceed 3000, but suppress is 3000"},
		{probe.Damping{Suppress: 2999, Max: 30 * time.Minute}, ""},
	} {
		err := c.d.WithDefaults().Check()
		if c.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", c.d, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: the error is %v, want %q", c.d, err, c.want)
		}
	}
}
