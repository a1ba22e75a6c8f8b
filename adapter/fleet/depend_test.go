package fleet_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/coord/shard"
	"github.com/sonde-probe/sonde/probe"
)

// Every other target depends on one without a driver that another engine owns, and fails with it. None is restarted
// until that one is well, also when its owner was killed.
func TestATargetWaitsForADependencyOfAnotherEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coord.NewLocal()
		owners := shard.Assign([]string{"one", "two"})
		ownerOf := func(i int) string { return owners[shard.Of(fmt.Sprintf("shop/web-%d", i))] }
		depends := map[string][]string{} // a target with a driver on one without
		for i := 0; i < many; i += 2 {
			for j := 1; j < many && len(depends) < 10; j += 2 {
				if ownerOf(i) == "one" && ownerOf(j) == "two" {
					depends[fmt.Sprintf("shop/web-%d", i)] = []string{fmt.Sprintf("shop/web-%d", j)}
					break
				}
			}
		}
		targets := w.targets(many)
		targets.Dependencies = depends
		one, two := start(t, "one", b, targets), start(t, "two", b, targets)
		for _, m := range []*member{one, two} {
			if err := m.engine.SetDependencies(depends); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		for target, on := range depends {
			w.infect(target, 0)
			w.infect(on[0], 0)
		}
		check := func(when string, engines ...*member) {
			t.Helper()
			for target, on := range depends {
				if asked, _ := w.counts(target + "#0"); asked > 0 {
					t.Errorf("%s: %s was restarted while %s was in trouble", when, target, on)
				}
				for _, m := range engines {
					if st, _ := m.seen(target); st.State != probe.StateUnreachable || st.TroubledDependency != on[0] {
						t.Errorf("%s: %s shows %s as %v because of %q", when, m.co.Name(), target, st.State, st.TroubledDependency)
					}
				}
			}
		}
		time.Sleep(time.Minute)
		check("after a minute", one, two)
		two.kill()
		time.Sleep(time.Minute)
		check("after a kill", one)
		for _, on := range depends {
			w.heal(on[0])
		}
		time.Sleep(time.Minute)
		for target := range depends {
			if asked, ended := w.counts(target + "#0"); asked != 1 || ended != 1 {
				t.Errorf("%s was asked %d times, and ended %d times", target, asked, ended)
			}
		}
	})
}
