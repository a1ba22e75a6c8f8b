package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// without returns all targets except some.
func without(all fleet.Targets, gone ...string) fleet.Targets {
	for _, target := range gone {
		delete(all.Units, target)
		for _, kind := range []probe.Kind{probe.Readiness, probe.Liveness} {
			delete(all.Probes, probe.ID{Target: target, Kind: kind})
		}
	}
	return all
}

// numbered returns the names of the first n targets of a world.
func numbered(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("shop/web-%d", i))
	}
	return all
}

// checkProbed checks that each target is probed by an engine that has it, and that all engines that have it show it as
// ready.
func checkProbed(t *testing.T, targets []string, lacking *member, others ...*member) {
	t.Helper()
	for _, target := range targets {
		owner := others[0].co.OwnerOf(target)
		if owner == "" || owner == lacking.co.Name() {
			t.Errorf("%s is owned by %q", target, owner)
		}
		for _, m := range others {
			if st, _ := m.seen(target); !st.Ready || st.Gateway != probe.GatewayReady {
				t.Errorf("%s shows %s, which %s owns, as %v", m.co.Name(), target, owner, st.State)
			}
		}
	}
}

// The files of one engine lack some targets, whichever engine joins first.
func TestWhatOneEngineLacksIsProbedByOthers(t *testing.T) {
	tier.CI(t)
	for _, first := range []string{"one", "two", "three"} {
		t.Run(first+" is the first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b, lacked := newWorld(), coordtest.NewLocal(), numbered(15)
				engines := map[string]*member{}
				revision := func() coord.Revision {
					_, at, _ := b.Range(t.Context(), "fleet/")
					return at
				}
				launch := func(name string) {
					targets := w.targets(many)
					if name == "two" {
						targets = without(targets, lacked...)
					}
					engines[name] = start(t, name, b, targets)
				}
				launch(first)
				time.Sleep(10 * time.Second)
				for _, name := range []string{"one", "two", "three"} {
					if engines[name] == nil {
						launch(name)
					}
				}
				one, two, three := engines["one"], engines["two"], engines["three"]
				time.Sleep(time.Minute)
				checkProbed(t, lacked, two, one, three)
				if n := two.probes(); n < many/6 {
					t.Errorf("the engine that lacks %d of %d targets has %d probes: it is to have its share of the others", len(lacked), many, n)
				}
				for _, target := range lacked {
					w.infect(target, 0)
				}
				time.Sleep(20 * time.Second)
				for i, target := range lacked {
					if n := len(w.restarts(target)); i%2 == 0 && n != 1 {
						t.Errorf("%s has failed, and was restarted %d times", target, n)
					}
					if st, _ := one.seen(target); i%2 == 1 && st.State != probe.StateNotReady {
						t.Errorf("%s has failed, and is shown as %v", target, st.State)
					}
				}
				d := one.fleet.Differences()
				if got := d["two"]; len(d) != 1 || got.Lacks != len(lacked) || got.More != 0 || got.Changed != 0 || len(got.LacksExamples) != 3 || got.LacksExamples[0] != "shop/web-0" {
					t.Errorf("the differences are %+v", d)
				}
				if got := two.fleet.Differences(); len(got) != 2 || got["one"].More != len(lacked) || got["one"].Lacks != 0 {
					t.Errorf("the engine that lacks targets sees the differences %+v", got)
				}
				before := revision()
				time.Sleep(time.Minute)
				if now := revision(); now != before {
					t.Errorf("%d keys were changed in a minute", now-before)
				}
			})
		})
	}
}

// An engine reloads files without some targets that it owned.
func TestATargetWhoseOwnerLacksItIsUndecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		one.runGroups(map[string]group.Rule{"web": {}})
		time.Sleep(time.Minute)
		lacked := two.anyOwned()
		if err := two.fleet.Apply(without(w.targets(many), lacked)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		st, _ := one.seen(lacked)
		if st.Ready || st.Gateway != probe.GatewayUndecided || st.Cause.Reason != "cluster.not_configured" || !strings.Contains(st.Cause.Detail, `engine "two"`) {
			t.Errorf("%s is shown as %v, to gateways %v, because of %+v", lacked, st.State, st.Gateway, st.Cause)
		}
		m := one.groups.Get("web").View().Member(lacked)
		if m == nil || m.State != probe.GatewayUndecided || !m.InRotation || m.Reason != "cluster.not_configured" {
			t.Errorf("the group has the member %+v", m)
		}
		time.Sleep(time.Minute)
		checkProbed(t, []string{lacked}, two, one)
	})
}

// Another engine reloads often: the difference in one shard changes all the time, while that in another shard stays.
func TestATargetIsProbedWhileOtherDifferencesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		lacked := two.anyOwned()
		var changing string
		for _, target := range numbered(many) {
			if shard.Of(target) != shard.Of(lacked) {
				changing = target
				break
			}
		}
		for i := range 8 {
			gone := []string{lacked, changing}
			if err := two.fleet.Apply(without(w.targets(many), gone[:1+i%2]...)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		checkProbed(t, []string{lacked}, two, one)
	})
}

// All engines reload files with other targets, one after the other, within seconds.
func TestNoShardMovesWhileAllEnginesReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		fewer := func() fleet.Targets { return without(w.targets(many), numbered(40)...) }
		one, two, three := start(t, "one", b, fewer()), start(t, "two", b, fewer()), start(t, "three", b, fewer())
		time.Sleep(time.Minute)
		all := []*member{one, two, three}
		owned := func() (now []coord.Owned) {
			for _, m := range all {
				o, _ := m.co.Owned()
				now = append(now, o)
			}
			return now
		}
		for _, next := range []func() fleet.Targets{func() fleet.Targets { return w.targets(many) }, fewer} {
			before := fmt.Sprint(owned())
			for _, m := range all {
				if err := m.fleet.Apply(next()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
			}
			time.Sleep(time.Minute)
			if fmt.Sprint(owned()) != before {
				t.Error("shards have moved")
			}
			if d := one.fleet.Differences(); len(d) > 0 {
				t.Errorf("the differences are %+v", d)
			}
		}
	})
}

func TestAnEngineThatProbesTargetsInAnotherWayIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		other := w.targets(many)
		id := probe.ID{Target: "shop/web-3", Kind: probe.Readiness}
		p := other.Probes[id]
		p.Rule.FailureThreshold++
		other.Probes[id] = p
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, other)
		time.Sleep(time.Minute)
		for _, m := range []*member{one, two} {
			d := m.fleet.Differences()
			for _, got := range d {
				if len(d) != 1 || got.Lacks+got.More != 0 || got.Changed < 1 || got.Changed > 3 || !strings.Contains(fmt.Sprint(got.ChangedExamples), id.Target) {
					t.Errorf("%s sees the differences %+v", m.co.Name(), d)
				}
			}
			if len(d) == 0 {
				t.Errorf("%s sees no difference", m.co.Name())
			}
		}
		checkSeen(t, w, one, two)
	})
}
