package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// hosts is the number of hosts of a city, and perHost the number of targets on each.
const hosts, perHost = 6, 6

// city is a fleet of engines that reach targets on several hosts. Each target has a driver, a liveness probe and a
// readiness probe, which get no response if the target is sick or their engine does not reach it.
type city struct {
	*testing.T
	world   *world
	net     *network
	backend *coordtest.Local
	members []*member
}

func nameOf(host, n int) string { return fmt.Sprintf("shop/%d-%d", host, n) }

func hostOf(target string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(target, "shop/"), "-")
	return host
}

func startCity(t *testing.T, engines int) *city {
	t.Helper()
	c := &city{T: t, world: newWorld(), net: newNetwork(), backend: coordtest.NewLocal()}
	for i := range engines {
		c.start(i)
	}
	time.Sleep(time.Minute)
	for _, m := range c.members {
		m.forget()
	}
	return c
}

func (c *city) start(i int) {
	name := fmt.Sprint("engine-", i)
	c.members = append(c.members, start(c.T, name, c.backend, c.targets(name)))
}

func (c *city) targets(engine string) fleet.Targets {
	t := fleet.Targets{Probes: probe.Set{}, Units: map[string]restart.Unit{}}
	for host := range hosts {
		for n := range perHost {
			target := nameOf(host, n)
			p := probe.Probe{
				Rule: probe.Rule{Period: time.Second, Timeout: 500 * time.Millisecond}, HandlerName: "test", Revision: "1",
				Target: probe.Target{Address: fmt.Sprint("10.0.0.", host)},
				Handler: probe.HandlerFunc(func(ctx context.Context, _ probe.Target) probe.Result {
					if c.world.isSick(target) || !c.net.carries(engine, hostOf(target)) {
						<-ctx.Done()
						return probe.Fail(probe.ReasonTCPTimeout, "no answer")
					}
					r := probe.Succeed("")
					r.Timings.Connect = time.Millisecond
					return r
				}),
			}
			t.Probes[probe.ID{Target: target, Kind: probe.Readiness}] = p
			t.Probes[probe.ID{Target: target, Kind: probe.Liveness}] = p
			t.Units[target] = restart.Unit{Driver: driver{world: c.world, target: target}, Revision: "1"}
		}
	}
	return t
}

// cut cuts the first engine off from n hosts.
func (c *city) cut(n int) {
	var cut []string
	for host := range n {
		cut = append(cut, fmt.Sprint("engine-0 ", host))
	}
	c.net.set(0, cut...)
}

// lose makes the first engine lose a share of its attempts.
func (c *city) lose(part float64) {
	c.net.set(part)
	c.net.lossy = "engine-0"
}

// owner returns the index of the engine that owns a target.
func (c *city) owner(target string) int {
	for i, m := range c.members {
		if _, owns := m.engine.Snapshot(probe.ID{Target: target, Kind: probe.Liveness}); owns {
			return i
		}
	}
	return -1
}

// ownedBy returns a target that an engine owns.
func (c *city) ownedBy(engine int) string {
	for host := range hosts {
		for n := range perHost {
			if target := nameOf(host, n); c.owner(target) == engine {
				return target
			}
		}
	}
	c.Fatalf("engine-%d owns no target", engine)
	return ""
}

// expectPeace fails the test if a healthy target was published as failing, or was restarted.
func (c *city) expectPeace(when string, except ...string) {
	c.Helper()
	for _, m := range c.members {
		for _, failed := range *m.failures.Load() {
			isExpected := false
			for _, target := range except {
				isExpected = isExpected || strings.Contains(failed, target)
			}
			if !isExpected {
				c.Errorf("%s: published as failing: %s", when, failed)
			}
		}
	}
	for host := range hosts {
		for n := range perHost {
			target := nameOf(host, n)
			if in := c.world.running(target); in.n > 0 && !strings.Contains(strings.Join(except, " "), target) {
				c.Errorf("%s: %s was restarted", when, target)
			}
		}
	}
}

// unready returns the targets that an engine shows as not ready, whether it owns them or not.
func (c *city) unready(m *member) (names []string) {
	for host := range hosts {
		for n := range perHost {
			if st, _ := m.fleet.Union().Target(nameOf(host, n)); !st.Ready {
				names = append(names, st.Target)
			}
		}
	}
	return names
}

// grays returns the number of targets that an engine shows as degraded because engines disagree.
func (c *city) grays(m *member) (n int) {
	for host := range hosts {
		for i := range perHost {
			st, _ := m.fleet.Union().Target(nameOf(host, i))
			for _, p := range st.Probes {
				if p.ID.Kind == probe.Readiness && p.Result.Reason == "cluster.gray" && st.Gateway == probe.GatewayDegraded {
					n++
				}
			}
		}
	}
	return n
}

func TestAnEngineThatIsCutOffFromSomeHostsFailsNoTarget(t *testing.T) {
	tier.Slow(t)
	for name, disturb := range map[string]func(c *city){
		"one host":   func(c *city) { c.cut(1) },
		"three":      func(c *city) { c.cut(3) },
		"five":       func(c *city) { c.cut(5) },
		"all":        func(c *city) { c.cut(6) },
		"30 percent": func(c *city) { c.lose(0.3) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCity(t, 3)
				disturb(c)
				for range 24 {
					time.Sleep(5 * time.Second)
					for _, m := range c.members {
						if names := c.unready(m); len(names) > 0 {
							t.Fatalf("%s shows as not ready: %v", m.co.Name(), names)
						}
					}
				}
				c.expectPeace(name)
				if name == "three" {
					for _, m := range c.members {
						if n := c.grays(m); n < perHost/2 || n > 3*perHost {
							t.Errorf("%s shows %d targets as gray", m.co.Name(), n)
						}
					}
				}
				c.cut(0)
				time.Sleep(5 * time.Second)
				for _, m := range c.members {
					if n := c.grays(m); n > 0 {
						t.Errorf("%s shows %d targets as gray afterwards", m.co.Name(), n)
					}
				}
			})
		})
	}
}

// A death that all engines can see is detected on both sides of a cut, no later than twice the usual time plus the time
// for a question.
func TestADeathIsFoundOnBothSidesOfACut(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		c := startCity(t, 3)
		c.cut(3)
		time.Sleep(20 * time.Second)
		var dead []string
		for host := range hosts {
			for n := range perHost {
				if target := nameOf(host, n); c.owner(target) == 0 {
					dead = append(dead, target)
					break
				}
			}
		}
		if len(dead) < 4 {
			t.Fatalf("the engine that is cut off owns targets on too few hosts: %v", dead)
		}
		for _, target := range dead {
			c.world.infect(target, 0)
		}
		time.Sleep(8 * time.Second)
		for _, target := range dead {
			if in := c.world.running(target); in.n != 1 {
				t.Errorf("%s was restarted %d times", target, in.n)
			}
		}
		time.Sleep(time.Minute)
		c.expectPeace("afterwards", dead...)
	})
}

// Without another engine that responds, an engine publishes its own findings.
func TestAnEngineThatCanAskNobodyPublishesWhatItSees(t *testing.T) {
	tier.Slow(t)
	for name, silence := range map[string]func(c *city){
		"alone":                 func(*city) {},
		"the others are killed": func(c *city) { c.members[1].kill(); c.members[2].kill() },
		"etcd is away": func(c *city) {
			for _, m := range c.members {
				m.backend.isCut.Store(true)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engines := 3
				if name == "alone" {
					engines = 1
				}
				c := startCity(t, engines)
				target := ""
				for n := range perHost {
					if target = nameOf(0, n); c.owner(target) == 0 {
						break
					}
				}
				silence(c)
				c.world.infect(target, 0)
				time.Sleep(5500 * time.Millisecond) // three periods, the timeout, and a second
				if failed := strings.Join(*c.members[0].failures.Load(), " "); !strings.Contains(failed, target+":") {
					st, _ := c.members[0].engine.Target(target)
					t.Errorf("%s was not published as failing, but %q: it is %v, with %+v", target, failed, st.State, st.Probes)
				}
			})
		})
	}
}

// An engine with other files attempts another endpoint, whose outcome is irrelevant to that of the owner.
func TestAWitnessOfAnotherEndpointSaysNothing(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		c := startCity(t, 2)
		target := c.ownedBy(0)
		other := c.targets("engine-1")
		for id, p := range other.Probes {
			if p.Target.Address = "10.0.9.9"; id.Target == target {
				other.Probes[id] = p
			}
		}
		if err := c.members[1].fleet.Apply(other); err != nil {
			t.Fatal(err)
		}
		c.cut(1) // the host of the target
		time.Sleep(6 * time.Second)
		if failed := strings.Join(*c.members[0].failures.Load(), " "); !strings.Contains(failed, target+":") {
			t.Errorf("%s passes, since another endpoint does; failing are %q", target, failed)
		}
	})
}

func TestOneDeadWitnessIsNotMissed(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		c := startCity(t, 3)
		c.cut(1)
		c.members[2].kill()
		time.Sleep(4 * time.Second) // it is still a member
		for _, target := range c.unready(c.members[0]) {
			st, _ := c.members[0].fleet.Union().Target(target)
			t.Errorf("%s of engine-%d is not ready: %+v", target, c.owner(target), st.Probes)
		}
		c.expectPeace("beside a dead engine")
	})
}

func TestWhatNoEngineHasSaidIsIgnored(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		c := startCity(t, 2)
		c.cut(1)
		for i, value := range []string{
			"", "{", `{"questions":[{"number":1,"of":["engine-0","engine-1"],"target":"none"}]}`,
			`{"questions":[{"number":1,"of":["engine-0"],"target":"` + strings.Repeat("x", 1<<16) + `","kind":"liveness"}]}`,
			`{"answers":[{"to":"engine-0","number":1,"outcome":"failure"},{"to":"engine-0","number":18446744073709551615,"outcome":"failure"}]}`,
			`{"answers":[{"to":"engine-0","number":-1}]}`,
		} {
			put(t, c.backend, "opinion/stranger", value)
			put(t, c.backend, fmt.Sprint("opinion/", i), value)
			put(t, c.backend, "opinion/engine-1", value)
		}
		time.Sleep(30 * time.Second)
		for _, m := range c.members {
			if names := c.unready(m); len(names) > 0 {
				t.Errorf("%s shows as not ready: %v", m.co.Name(), names)
			}
		}
	})
}

func TestFewQuestionsOfAMessageAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCity(t, 2)
		_, before, _ := c.backend.Range(t.Context(), "opinion/")
		put(t, c.backend, "opinion/engine-1", `{"questions":[`+strings.Repeat(`{"number":1,"of":["engine-0"],"target":"none","kind":"liveness"},`, 10_000)+`{"number":1}]}`)
		time.Sleep(10 * time.Second)
		_, after, _ := c.backend.Range(t.Context(), "opinion/")
		if n := after - before - 1; n < 1 || n > 2 {
			t.Errorf("%d messages with answers were written", n)
		}
	})
}

func TestNothingIsWrittenAboutTargetsThatAnswer(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		c := startCity(t, 3)
		before := make([]int64, len(c.members))
		for i, m := range c.members {
			before[i] = m.backend.writes.Load()
		}
		time.Sleep(5 * time.Minute)
		for i, m := range c.members {
			if n := m.backend.writes.Load() - before[i]; n > 0 {
				t.Errorf("%s has written %d times", m.co.Name(), n)
			}
		}
	})
}
