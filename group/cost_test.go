package group_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// crowd returns an engine with targets, and a hundred groups of which each target is in the
// first and in one other.
func crowd(tb testing.TB, targets int) (*engine.Engine, *group.Groups) {
	tb.Helper()
	e, set := engine.New(engine.Config{}), probe.Set{}
	for i := range targets {
		id := probe.ID{Target: fmt.Sprintf("g%02d/%06d", 1+i%99, i), Kind: probe.Liveness}
		set[id] = probe.Probe{Handler: &answer{}}
	}
	if _, err := e.Apply(set); err != nil {
		tb.Fatal(err)
	}
	rules := map[string]group.Rule{"all": rule(tb, "50%", nil, nil)}
	for i := 1; i < 100; i++ {
		rules[fmt.Sprint(i)] = rule(tb, "2", []string{fmt.Sprintf("g%02d/*", i)}, nil)
	}
	groups := group.New(group.Config{Engine: e})
	if err := groups.Apply(rules); err != nil {
		tb.Fatal(err)
	}
	return e, groups
}

// flip changes the state of a target, and lets the groups follow.
func flip(e *engine.Engine, groups *group.Groups, target string, up bool) {
	release := groups.Hold()
	phase := probe.Ended
	if up {
		phase = probe.Running
	}
	e.Report(probe.Instance{Target: target, ID: "1", Phase: phase, Since: time.Unix(0, 0)})
	release()
}

// A change costs what the groups of its target cost, and not what all targets and groups do:
// with fifty times as many targets it allocates as often.
func TestAChangeTouchesTheGroupsOfItsTargetOnly(t *testing.T) {
	tier.Slow(t)
	var allocations [2]float64
	for i, targets := range []int{990, 49_500} {
		e, groups := crowd(t, targets)
		others := map[string]uint64{}
		for _, v := range groups.Views() {
			others[v.Group] = v.Version
		}
		up := false
		allocations[i] = testing.AllocsPerRun(50, func() {
			up = !up
			flip(e, groups, "g07/000006", up)
		})
		for _, v := range groups.Views() {
			if changed := v.Version != others[v.Group]; changed != (v.Group == "all" || v.Group == "7") {
				t.Errorf("with %d targets: the view of group %s has changed: %v", targets, v.Group, changed)
			}
		}
	}
	if allocations[1] > allocations[0]+10 {
		t.Errorf("a change makes %v allocations with few targets, and %v with many", allocations[0], allocations[1])
	}
}

func BenchmarkAChangeAmongAHundredThousandTargets(b *testing.B) {
	e, groups := crowd(b, 100_000)
	up := false
	b.ReportAllocs()
	for b.Loop() {
		up = !up
		flip(e, groups, "g07/000006", up)
	}
}

// BenchmarkAHundredThousandTargetsJoin makes groups of an engine that has its targets already, as
// at a start.
func BenchmarkAHundredThousandTargetsJoin(b *testing.B) {
	e, _ := crowd(b, 100_000)
	rules := map[string]group.Rule{"all": rule(b, "50%", nil, nil)}
	b.ReportAllocs()
	for b.Loop() {
		groups := group.New(group.Config{Engine: e})
		if err := groups.Apply(rules); err != nil {
			b.Fatal(err)
		}
		if n := groups.Get("all").View().Counts.Total(); n != 100_000 {
			b.Fatalf("there are %d members", n)
		}
		if err := groups.Apply(nil); err != nil { // ends the subscription
			b.Fatal(err)
		}
	}
}
