package restart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// unused is a Driver that no test runs; outside is an External one.
type unused struct{ Driver }

type outside struct{ unused }

func (outside) SetFailed(func(error)) {}

func TestAReloadGuardLimitsWhatIsRemovedAndRestarted(t *testing.T) {
	for _, test := range []struct {
		units, removed, restarted int
		run, ended                int
		guard                     probe.Share
		exceeds                   bool
	}{
		{units: 20, removed: 10, guard: 0.5},
		{units: 20, removed: 11, guard: 0.5, exceeds: true},
		{units: 20, removed: 6, restarted: 5, guard: 0.5, exceeds: true},
		{units: 20, restarted: 20, guard: 1},
		{units: 20, removed: 1, guard: 0.01, exceeds: true},
		{units: 10, removed: 6, guard: 0.5, exceeds: true},
		{units: 9, removed: 9, guard: 0.5}, // too few
		{units: 100, removed: 29, guard: 0.29},
		{units: 100, removed: 30, guard: 0.29, exceeds: true},
		{units: 1020, removed: 20, run: 20, ended: 20, guard: 0.5, exceeds: true}, // the other thousand are only probed
		{units: 1020, removed: 10, run: 20, ended: 10, guard: 0.5},
		{units: 1009, removed: 9, run: 9, ended: 9, guard: 0.5}, // too few
	} {
		e := Effect{Units: test.units, Removed: make([]string, test.removed), Restarted: make([]string, test.restarted), Run: test.run, Ended: test.ended}
		if got := e.Exceeds(test.guard); got != test.exceeds {
			t.Errorf("%v with a guard of %v: %v", e, test.guard, got)
		}
	}
}

func TestTheEffectOfUnitsIsThatOnThoseInUse(t *testing.T) {
	before, after := map[string]Unit{}, map[string]Unit{}
	for _, name := range []string{"same", "changed", "undriven", "gone"} {
		before[name] = Unit{Driver: unused{}, Revision: "1"}
		after[name] = before[name]
	}
	before["static"], after["static"] = Unit{}, Unit{}
	before["outside"], after["outside"] = Unit{Driver: outside{}, Revision: "1"}, Unit{Driver: outside{}, Revision: "2"}
	after["changed"] = Unit{Driver: unused{}, Revision: "2"}
	after["undriven"] = Unit{}
	after["new"] = Unit{Driver: unused{}}
	delete(after, "gone")
	c, err := New(Config{Engine: engine.New(engine.Config{}), IsShared: func(target string) bool { return strings.HasPrefix(target, "shared") }})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.TakeOver(map[string]Unit{"shared": {}, "shared outside": {Driver: outside{}}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(before); err != nil {
		t.Fatal(err)
	}
	e := c.EffectOfApply(after)
	slices.Sort(e.Restarted)
	if !slices.Equal(e.Added, []string{"new"}) {
		t.Errorf("%q would be added", e.Added)
	}
	if got := fmt.Sprintf("%+v", e); got != "remove 1 and restart 2 of 6 targets, and end 3 of 4 processes" || e.Removed[0] != "gone" || !slices.Equal(e.Restarted, []string{"changed", "undriven"}) {
		t.Errorf("the effect is %v: %q, %q", got, e.Removed, e.Restarted)
	}
	if err := c.Apply(after); err != nil {
		t.Fatal(err)
	}
	if e := c.EffectOfApply(nil); e.Units != 6 || len(e.Removed) != 6 || c.Driver("shared outside") == nil || !c.static.has("shared") {
		t.Errorf("afterwards the removal of all units would be %v: %q", e, e.Removed)
	}
}
