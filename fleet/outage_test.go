package fleet_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// While the store is unreachable, two fifths of all targets fail. The earlier status of other engines is no reason to
// doubt. Once the store is back, all targets are restarted: immediately where the leases are still valid, and otherwise
// once the shards are claimed.
func TestAnOutageOfTheStoreIsNoReasonToDoubt(t *testing.T) {
	tier.CI(t)
	for _, away := range []time.Duration{coord.DefaultTTL / 2, 90 * time.Second} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(), coordtest.NewLocal()
				var members []*member
				for i := range 3 {
					members = append(members, start(t, fmt.Sprint("engine-", i), b, w.targets(300)))
				}
				time.Sleep(time.Minute)
				watch := func(d time.Duration) {
					t.Helper()
					for range d / (100 * time.Millisecond) {
						time.Sleep(100 * time.Millisecond)
						for _, m := range members {
							if d := m.fleet.Doubt(); d.Alone {
								t.Fatalf("%s doubts: %+v", m.co.Name(), d)
							}
						}
					}
				}
				for _, m := range members {
					m.backend.isCut.Store(true)
				}
				watch(time.Second)
				var sick []string
				for i := 0; i < 300; i += 5 {
					for _, target := range []string{fmt.Sprint("shop/web-", i), fmt.Sprint("shop/web-", i+2)} {
						w.infect(target, 0)
						sick = append(sick, target)
					}
				}
				watch(away)
				back := time.Now()
				for _, m := range members {
					m.backend.isCut.Store(false)
				}
				watch(time.Minute)
				var took []time.Duration
				for _, target := range sick {
					if id := 0; len(w.restarts(target)) > id {
						took = append(took, w.restarts(target)[0].Sub(back))
					}
				}
				slices.Sort(took)
				if len(took) < len(sick)/2 {
					t.Fatalf("%d of %d targets were restarted", len(took), len(sick))
				}
				t.Logf("restarted after %v (p50), %v (max)", took[len(took)/2], took[len(took)-1])
				if took[len(took)-1] > 6*time.Second {
					t.Errorf("the last was restarted %v after the store was back", took[len(took)-1])
				}
			})
		})
	}
}

// After an outage the engines reach the store again one by one. None takes over shards whose targets another engine has
// probed throughout.
func TestEnginesKeepTheirShardsThroughAnOutageOfTheStore(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		var members []*member
		for i := range 3 {
			members = append(members, start(t, fmt.Sprint("engine-", i), b, w.targets(60)))
		}
		time.Sleep(time.Minute)
		probes := func() (all [3]int) {
			for i, m := range members {
				all[i] = m.probes()
			}
			return all
		}
		before := probes()
		for _, m := range members {
			m.backend.isCut.Store(true)
		}
		time.Sleep(90 * time.Second)
		for _, m := range members {
			m.backend.isCut.Store(false)
			for range 10 {
				time.Sleep(50 * time.Millisecond)
				if now := probes(); now != before {
					t.Fatalf("engines have %v probes, and had %v", now, before)
				}
			}
		}
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			if now := probes(); now != before {
				t.Fatalf("engines have %v probes, and had %v", now, before)
			}
		}
		for i := range 60 {
			if owners := slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return !m.fleet.MayAct(fmt.Sprint("shop/web-", i)) }); len(owners) != 1 {
				t.Errorf("%d engines may act for shop/web-%d", len(owners), i)
			}
		}

		// An engine that does not come back loses its shards to the others.
		for _, m := range members {
			m.backend.isCut.Store(true)
		}
		time.Sleep(90 * time.Second)
		for _, m := range members[:2] {
			m.backend.isCut.Store(false)
		}
		time.Sleep(5 * time.Second)
		for i := range 60 {
			if target := fmt.Sprint("shop/web-", i); !members[0].fleet.MayAct(target) && !members[1].fleet.MayAct(target) {
				t.Errorf("no engine may act for %s", target)
			}
		}
	})
}
