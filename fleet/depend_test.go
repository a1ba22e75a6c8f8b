package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// dependents are targets with a driver that the engine one owns. Each depends on a target without a driver that the
// engine two owns.
type dependents struct {
	*world
	depends  map[string][]string
	one, two *member
}

func startDependents(t *testing.T, ttl time.Duration) *dependents {
	t.Helper()
	d := &dependents{world: newWorld(), depends: map[string][]string{}}
	owners := shard.Assign([]string{"one", "two"})
	ownerOf := func(i int) string { return owners[shard.Of(fmt.Sprintf("shop/web-%d", i))] }
	for i := 0; i < many; i += 2 {
		for j := 1; j < many && len(d.depends) < 2; j += 2 {
			if ownerOf(i) == "one" && ownerOf(j) == "two" {
				d.depends[fmt.Sprintf("shop/web-%d", i)] = []string{fmt.Sprintf("shop/web-%d", j)}
				break
			}
		}
	}
	targets, b := d.targets(many), coordtest.NewLocal()
	targets.Dependencies = d.depends
	begin := func(name string) *member {
		cut := &cutOff{Backend: b}
		return startWith(t, coord.Config{Name: name, Backend: cut, TTL: ttl, MaxAge: store.DefaultMaxAge}, cut, targets)
	}
	d.one, d.two = begin("one"), begin("two")
	for _, m := range []*member{d.one, d.two} {
		if _, err := m.engine.Change(engine.Change{Dependencies: d.depends}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
	return d
}

func (d *dependents) infectAll() {
	for target, on := range d.depends {
		d.infect(target, 0)
		d.infect(on[0], 0)
	}
}

// check checks that no dependent was restarted, and that engines show all of them as unreachable.
func (d *dependents) check(t *testing.T, when string, engines ...*member) {
	t.Helper()
	for target, on := range d.depends {
		if asked, _ := d.counts(target + "#0"); asked > 0 {
			t.Errorf("%s: %s was restarted while %s was in trouble", when, target, on)
		}
		for _, m := range engines {
			if st, _ := m.seen(target); st.State != probe.StateUnreachable || st.TroubledDependency != on[0] {
				t.Errorf("%s: %s shows %s as %v because of %q", when, m.co.Name(), target, st.State, st.TroubledDependency)
			}
		}
	}
}

// checkRestarts heals the dependencies, and checks that the dependents, which are still sick, are then restarted.
func (d *dependents) checkRestarts(t *testing.T) {
	t.Helper()
	for _, on := range d.depends {
		d.heal(on[0])
	}
	time.Sleep(time.Minute)
	for target := range d.depends {
		if asked, ended := d.counts(target + "#0"); asked != 1 || ended != 1 {
			t.Errorf("%s was asked %d times, and ended %d times", target, asked, ended)
		}
	}
}

// Every other target depends on a target without a driver that another engine owns, and fails with it. No dependent is
// restarted until its dependency is well, even when the owner of the dependency was killed.
func TestATargetWaitsForADependencyOfAnotherEngine(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		d := startDependents(t, coord.DefaultTTL)
		d.infectAll()
		time.Sleep(time.Minute)
		d.check(t, "after a minute", d.one, d.two)
		d.two.kill()
		time.Sleep(time.Minute)
		d.check(t, "after a kill", d.one)
		d.checkRestarts(t)
	})
}

// A host dies with targets and the engine that owns them. Dependents wait until another engine has taken these targets
// over, and has found them failing.
func TestATargetWaitsForADependencyThatFailsWithItsOwner(t *testing.T) {
	tier.CI(t)
	for _, ttl := range []time.Duration{coord.DefaultTTL, 15 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startDependents(t, ttl)
				d.infectAll()
				d.two.kill()
				time.Sleep(time.Minute)
				d.check(t, "after a minute", d.one)
				d.checkRestarts(t)
			})
		})
	}
}

// While the store is unreachable, the state of other engines' targets is unknown. A target that was failing then
// explains no failures of this engine's targets until the store is back.
func TestADependencyOfAnotherEngineExplainsNothingOnceTheStoreIsAway(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		d := startDependents(t, coord.DefaultTTL)
		var on string
		for _, depends := range d.depends {
			on = depends[0]
		}
		local := probe.ID{Target: "local", Kind: probe.Readiness}
		p := d.targets(1).Probes[probe.ID{Target: crippled, Kind: probe.Readiness}]
		p.Handler = probe.HandlerFunc(func(context.Context, probe.Target) probe.Result { return probe.Fail("test.sick", "") })
		p.Target.Static = true
		if _, err := d.one.engine.Owner("files").Change(engine.Change{Set: probe.Set{local: p}, Dependencies: map[string][]string{local.Target: {on}}}); err != nil {
			t.Fatal(err)
		}
		is := func(when string, want probe.TargetState) {
			t.Helper()
			if st, _ := d.one.engine.Target(local.Target); st.State != want {
				t.Errorf("%s the target is %v, want %v", when, st.State, want)
			}
		}
		d.infect(on, 0)
		time.Sleep(time.Minute)
		is("while its dependency is in trouble", probe.StateUnreachable)
		d.one.backend.isCut.Store(true)
		time.Sleep(coord.DefaultTTL)
		is("when the store was lost", probe.StateUnreachable)
		time.Sleep(2 * coord.DefaultTTL)
		is("while the store is away", probe.StateNotReady)
		if _, known := d.one.engine.Admin().Dependency(on); known {
			t.Error("the dependency is known while the store is away")
		}
		d.one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		is("when the store is back", probe.StateUnreachable)
	})
}
