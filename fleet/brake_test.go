package fleet_test

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/quorum"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
)

// push replaces the liveness probes of targets in all engines, as a pushed configuration does.
func push(t *testing.T, before fleet.Targets, revision string, h probe.HandlerFunc, engines ...*member) fleet.Targets {
	t.Helper()
	next := before
	next.Probes = maps.Clone(before.Probes)
	for id, p := range next.Probes {
		if id.Kind == probe.Liveness {
			p.Handler, p.Revision = h, revision
			next.Probes[id] = p
		}
	}
	scratch := engine.New(engine.Config{})
	if _, err := scratch.Apply(before.Probes); err != nil {
		t.Fatal(err)
	}
	p, err := scratch.Plan(engine.Change{Set: next.Probes, All: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Discard()
	for _, m := range engines {
		m.restarts.Reloading(restart.Reload{Name: "the push of revision " + revision, Changes: p.Preview().Probes})
		if err := m.fleet.Apply(next); err != nil {
			t.Fatal(err)
		}
	}
	return next
}

// A wrong liveness probe is pushed to three engines that share 40 healthy targets, which it would restart. None is
// restarted, even when one of the engines dies. The next push corrects the probe.
func TestAWrongProbeThatIsPushedRestartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := w.targets(80) // every other has a driver
		var engines []*member
		for _, name := range []string{"one", "two", "three"} {
			engines = append(engines, start(t, name, b, targets))
		}
		time.Sleep(time.Minute)
		restarts := func() (n int) {
			for target := range targets.Units {
				n += len(w.restarts(target))
			}
			return n
		}
		targets = push(t, targets, "2", func(context.Context, probe.Target) probe.Result {
			return probe.Fail(probe.ReasonHTTPStatus, "404")
		}, engines...)
		time.Sleep(30 * time.Second)
		if n := restarts(); n > 0 {
			t.Fatalf("%d restarts in 30 s of healthy targets", n)
		}
		blocked := 0
		for _, m := range engines {
			blocked += m.engine.States()[probe.StateRestartBlocked]
		}
		if blocked != 40 {
			t.Errorf("%d restarts are blocked", blocked)
		}
		engines[0].kill()
		time.Sleep(5 * time.Minute)
		if n := restarts(); n > 0 {
			t.Fatalf("%d restarts after the death of an engine", n)
		}
		push(t, targets, "3", func(context.Context, probe.Target) probe.Result { return probe.Succeed("") }, engines[1:]...)
		time.Sleep(time.Minute)
		for _, m := range engines[1:] {
			states := m.engine.States()
			if n := states.InTrouble(); n > 0 {
				t.Errorf("%d targets of %s are in trouble after the correction", n, m.co.Name())
			}
		}
		if n := restarts(); n > 0 {
			t.Errorf("%d restarts", n)
		}
	})
}

// The restarts that an engine has charged to its restart budget also count for the budget of the next owner.
func TestTheRestartBudgetMovesWithATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(2))
		time.Sleep(time.Minute)
		w.infect(crippled, 0)
		time.Sleep(10 * time.Second)
		before, _ := one.restarts.Memory(crippled)
		two := start(t, "two", b, w.targets(2))
		time.Sleep(time.Minute)
		one.kill()
		time.Sleep(time.Minute)
		after, _ := two.restarts.Memory(crippled)
		if before.Charged.IsZero() || !after.Charged.Equal(before.Charged) {
			t.Errorf("charged at %v by the one, and at %v by the next", before.Charged, after.Charged)
		}
	})
}

// wrong is the handler of a probe that fails whatever the state of its target.
func wrong(context.Context, probe.Target) probe.Result {
	return probe.Fail(probe.ReasonHTTPStatus, "404")
}

// Engines take over targets whose probes are wrong and have never succeeded since: through a push before the engines
// started, or since they were started with other files. They restart none of these targets, nor does the engine that
// takes over from them.
func TestAWrongProbeRestartsNothingAfterATakeover(t *testing.T) {
	for name, isPushed := range map[string]bool{"pushed before": true, "in the files of the next engines": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(), coordtest.NewLocal()
				targets := w.targets(80)
				engines := startAll(t, b, targets, "one", "two", "three")
				time.Sleep(time.Minute)
				next := push(t, targets, "2", wrong)
				if isPushed {
					next = push(t, targets, "2", wrong, engines...)
					time.Sleep(time.Minute)
				}
				for _, m := range engines {
					m.stop()
				}
				engines = startAll(t, b, next, "one", "two", "three")
				time.Sleep(3 * time.Minute)
				engines[0].kill()
				time.Sleep(3 * time.Minute)
				for target := range targets.Units {
					if n := len(w.restarts(target)); n > 0 {
						t.Fatalf("%d restarts of %s", n, target)
					}
				}
			})
		})
	}
}

// startAll starts engines at the same time.
func startAll(t *testing.T, b *coordtest.Local, targets fleet.Targets, names ...string) (all []*member) {
	t.Helper()
	for _, name := range names {
		all = append(all, start(t, name, b, targets))
	}
	return all
}

// Engines start again, and some of the targets fail that were well before: these are restarted.
func TestTargetsThatFailAtATakeoverAreRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := w.targets(40)
		engines := startAll(t, b, targets, "one", "two")
		time.Sleep(time.Minute)
		for _, m := range engines {
			m.stop()
		}
		sick := 0
		for target := range targets.Units {
			if targets.Units[target].Driver != nil && sick < 8 {
				w.infect(target, 0)
				sick++
			}
		}
		startAll(t, b, targets, "one", "two")
		time.Sleep(3 * time.Minute)
		restarted := 0
		for target := range targets.Units {
			if len(w.restarts(target)) > 0 {
				restarted++
			}
		}
		if restarted != sick {
			t.Errorf("%d of %d sick targets were restarted", restarted, sick)
		}
	})
}

// An engine dies shortly after it has started, with targets that are sick and have never been well. Since nothing was
// changed, the next engine restarts them, though they are more than a fifth.
func TestTargetsThatNeverSucceededAreRestartedAfterATakeover(t *testing.T) {
	for after := 500 * time.Millisecond; after < 4*time.Second; after += 500 * time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(), coordtest.NewLocal()
				targets := w.targets(40)
				sick := map[string]bool{}
				for target, u := range targets.Units {
					if u.Driver != nil && len(sick) < 10 {
						w.infect(target, 0)
						sick[target] = true
					}
				}
				first := start(t, "one", b, targets)
				time.Sleep(after)
				first.kill()
				start(t, "two", b, targets)
				time.Sleep(time.Minute)
				for target := range sick {
					if w.isSick(target) {
						t.Errorf("%s was not restarted: %v", target, w.restarts(target))
					}
				}
			})
		})
	}
}

// A wrong liveness probe with a quorum, or wrong thresholds of it, are pushed to three engines, one after the other.
// Votes from before the push do not count as successes of the probe.
func TestAWrongProbeWithAQuorumRestartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := w.targets(80)
		targets.Quorums = map[probe.ID]quorum.Rule{}
		for id := range targets.Probes {
			if id.Kind == probe.Liveness {
				targets.Quorums[id] = quorum.Rule{Vantages: 3, Min: 2}
			}
		}
		engines := startAll(t, b, targets, "one", "two", "three")
		time.Sleep(time.Minute)
		next := push(t, targets, "2", wrong, engines[0])
		time.Sleep(5 * time.Second)
		push(t, targets, "2", wrong, engines[1:]...)
		time.Sleep(3 * time.Minute)
		push(t, next, "3", func(context.Context, probe.Target) probe.Result { return probe.Succeed("") }, engines...)
		time.Sleep(3 * time.Minute)
		for target := range targets.Units {
			if n := len(w.restarts(target)); n > 0 {
				t.Fatalf("%d restarts of %s", n, target)
			}
		}
		for _, m := range engines {
			if states := m.engine.States(); states.InTrouble() > 0 {
				t.Errorf("%d targets of %s are in trouble after the correction", states.InTrouble(), m.co.Name())
			}
		}
	})
}
