package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// entries returns the keys with a prefix.
func entries(t *testing.T, b coord.Backend, prefix string) (keys []string) {
	t.Helper()
	all, _, err := b.Range(context.Background(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		keys = append(keys, e.Key)
	}
	return keys
}

// stopWhileFailing stops the only engine of a fleet while a paused target is failing, so that the failure is stored and
// nothing is done about it. Then the target recovers.
func stopWhileFailing(t *testing.T, w *world, b coord.Backend, isKilled bool) {
	t.Helper()
	one := start(t, "one", b, w.targets(1))
	time.Sleep(time.Minute)
	one.engine.Admin().Pause(crippled, engine.Pause{Reason: probe.ReasonPaused, Since: time.Now()})
	w.infect(crippled, 0)
	time.Sleep(10 * time.Second)
	if s, _ := one.engine.Status(probe.ID{Target: crippled, Kind: probe.Liveness}); s.Verdict != probe.Failing {
		t.Fatalf("it is %v", s.Verdict)
	}
	if isKilled {
		one.kill()
	} else {
		one.stop()
	}
	w.heal(crippled)
}

// All engines are stopped while a target is failing. Meanwhile people repair it: no engine restarts it without a new
// attempt.
func TestAnOldFailureRestartsNothing(t *testing.T) {
	tier.Slow(t)
	for _, stopped := range []time.Duration{10 * time.Second, 5 * time.Minute, time.Hour} {
		for _, isKilled := range []bool{true, false} {
			t.Run(fmt.Sprint(stopped, isKilled), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, b := newWorld(), coordtest.NewLocal()
					stopWhileFailing(t, w, b, isKilled)
					time.Sleep(stopped)
					two := start(t, "two", b, w.targets(1))
					time.Sleep(time.Minute)
					if asked, _ := w.counts(crippled + "#0"); asked != 0 {
						t.Errorf("it was asked %d times to terminate", asked)
					}
					if s, _ := two.engine.Target(crippled); s.State != probe.StateReady {
						t.Errorf("it is %v", s.State)
					}
				})
			})
		}
	}
}

// interrupted is a coord.Backend whose engine loses its membership once its first shards are marked as loaded. It
// rejoins immediately, and reads the members only after some time.
type interrupted struct {
	coord.Backend
	name     string
	hasEnded atomic.Bool
}

func (b *interrupted) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	made, err := b.Backend.Commit(ctx, all...)
	key := all[0].Then[0].Key
	if _, isMark := strings.CutPrefix(key, "memory/"); isMark && !strings.Contains(key[len("memory/"):], "/") && b.hasEnded.CompareAndSwap(false, true) {
		if _, err := b.Backend.Commit(ctx, coord.Transaction{Then: []coord.Change{{Key: "fleet/m/" + b.name, Delete: true}}}); err != nil {
			return nil, err
		}
		time.Sleep(coord.DefaultTTL / 2) // it has rejoined
	}
	return made, err
}

func (b *interrupted) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if b.hasEnded.Load() && prefix == "fleet/" {
		time.Sleep(coord.DefaultTTL / 2)
	}
	return b.Backend.Range(ctx, prefix)
}

// As above, but the starting engine loses its lease after it has loaded the first shards, as may happen under load.
// Memories that it loads between two memberships are not recent because of the second one.
func TestAnOldFailureRestartsNothingIfALeaseIsLostWhileShardsAreLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		stopWhileFailing(t, w, b, false)
		time.Sleep(time.Minute)
		targets := w.targets(1)
		for id, p := range targets.Probes {
			p.Rule.Period = 30 * time.Second // the first attempt comes only after the engine may act again
			targets.Probes[id] = p
		}
		cut := &cutOff{Backend: &interrupted{Backend: b, name: "two"}}
		two := resumeWith(t, "two", cut, targets, fleet.Trust)
		time.Sleep(time.Minute)
		if asked, _ := w.counts(crippled + "#0"); asked != 0 {
			t.Errorf("it was asked %d times to terminate", asked)
		}
		if s, _ := two.engine.Target(crippled); s.State != probe.StateReady {
			t.Errorf("it is %v", s.State)
		}
	})
}

// As above, but for longer than memories are recent; and the first engine that starts exits, or gives the target up,
// before it has loaded anything. That engine does not affect the age of stored memories.
func TestAnOldFailureRestartsNothingAfterAnOwnerThatHasLoadedNothing(t *testing.T) {
	tier.Slow(t)
	first, second := "one", "two"
	if shard.Assign([]string{first, second})[shard.Of(crippled)] == second {
		first, second = second, first
	}
	for what, names := range map[string][2]string{"killed": {first, second}, "gives it up": {second, first}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(), coordtest.NewLocal()
				stopWhileFailing(t, w, b, false)
				time.Sleep(store.DefaultMaxAge + time.Minute)
				one := startRefused(t, names[0], b, w.targets(1))
				time.Sleep(time.Second)
				two := start(t, names[1], b, w.targets(1))
				time.Sleep(time.Minute)
				one.kill()
				time.Sleep(time.Minute)
				if asked, _ := w.counts(crippled + "#0"); asked != 0 {
					t.Errorf("it was asked %d times to terminate", asked)
				}
				if s, _ := two.engine.Target(crippled); s.State != probe.StateReady {
					t.Errorf("it is %v", s.State)
				}
			})
		})
	}
}

// An engine that is killed repeatedly before it has loaded anything does not make an old verdict recent.
func TestVerdictsDoNotBecomeRecentByStarts(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(1))
		time.Sleep(time.Minute)
		one.stop()
		time.Sleep(store.DefaultMaxAge + time.Minute)
		for range 3 {
			next := startRefused(t, "one", b, w.targets(1))
			time.Sleep(20 * time.Second)
			next.kill()
		}
		w.infect(crippled, time.Hour)
		last := start(t, "one", b, w.targets(1))
		for range 100 { // until the first attempt, and after it
			if s, ok := last.engine.Status(probe.ID{Target: crippled, Kind: probe.Readiness}); ok && s.Verdict == probe.Passing {
				t.Fatal("a verdict that is older than max_age is published")
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// After all engines were stopped and started, they resume verdicts of healthy targets, not for longer than a single
// engine would, and as configured.
func TestMemoriesAreResumedAsConfigured(t *testing.T) {
	tier.CI(t)
	for _, tc := range []struct {
		stopped  time.Duration
		how      fleet.Resume
		failures bool
	}{
		{10 * time.Second, fleet.Trust, false},
		{store.DefaultMaxAge - time.Minute, fleet.Trust, false},
		{store.DefaultMaxAge + time.Minute, fleet.Trust, true},
		{10 * time.Second, fleet.Verify, false},
		{10 * time.Second, fleet.Forget, true},
	} {
		t.Run(fmt.Sprint(tc.stopped, tc.how), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(), coordtest.NewLocal()
				one := start(t, "one", b, w.targets(2))
				time.Sleep(store.DefaultMaxAge + time.Minute) // the age counts from the owner's exit
				one.stop()
				time.Sleep(tc.stopped)
				for i := range 2 { // for at most one attempt, which changes no resumed verdict
					w.infect(fmt.Sprintf("shop/web-%d", i), 0)
				}
				two := resume(t, "two", b, w.targets(2), tc.how)
				time.Sleep(900 * time.Millisecond)
				for i := range 2 {
					w.heal(fmt.Sprintf("shop/web-%d", i))
				}
				time.Sleep(time.Minute)
				if failed := *two.failures.Load(); (len(failed) > 0) != tc.failures {
					t.Errorf("%d healthy probes were published as failing: %s", len(failed), strings.Join(failed[:min(5, len(failed))], ", "))
				}
			})
		})
	}
}

// An engine that joins others resumes from their memories, whatever is configured for a start.
func TestAHandOverIsNoStart(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(many))
		time.Sleep(time.Minute)
		two := resume(t, "two", b, w.targets(many), fleet.Forget)
		time.Sleep(4 * time.Second)
		one.stop()
		time.Sleep(time.Minute)
		if n := two.probes(); n != many*3/2 {
			t.Errorf("it has %d probes", n)
		}
		if failed := *two.failures.Load(); len(failed) > 0 {
			t.Errorf("%d healthy probes were published as failing", len(failed))
		}
	})
}

// A removed target leaves nothing in the store, even if it was the last one of its shard. When it is added again, it
// starts afresh.
func TestARemovedTargetIsForgotten(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(many))
		time.Sleep(time.Minute)
		for i := range many {
			w.infect(fmt.Sprintf("shop/web-%d", i), 0)
		}
		time.Sleep(time.Minute) // each target with a driver was restarted
		memory := func() int { return len(entries(t, b, "memory/")) - shard.Count }
		if n, acts := memory(), len(entries(t, b, "act/")); n != many || acts != many/2 {
			t.Fatalf("%d memories, and %d records of acts", n, acts)
		}
		if err := one.fleet.Apply(w.targets(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n, acts := memory(), len(entries(t, b, "act/")); n != 1 || acts != 1 {
			t.Errorf("of a target, %d memories and %d records of acts are left", n, acts)
		}
		if err := one.fleet.Apply(w.targets(many)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s, _ := one.engine.Target("shop/web-2"); s.Instance.Restarts != 0 || s.State != probe.StateReady {
			t.Errorf("a target that was added again has %d restarts, and is %v", s.Instance.Restarts, s.State)
		}
	})
}

// Targets that are removed while no engine is running leave nothing, either.
func TestTargetsThatAreRemovedWhileAllEnginesAreStoppedAreForgotten(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(many))
		time.Sleep(time.Minute)
		for i := range many {
			w.infect(fmt.Sprintf("shop/web-%d", i), 0)
		}
		time.Sleep(time.Minute)
		one.stop()
		start(t, "two", b, w.targets(0))
		time.Sleep(10 * time.Minute)
		if n, acts := len(entries(t, b, "memory/"))-shard.Count, len(entries(t, b, "act/")); n+acts > 0 {
			t.Errorf("%d memories and %d records of acts are left", n, acts)
		}
	})
}

// An engine that was cut off resumes its shards when it is back. Restarts that another engine has made meanwhile are not
// lost.
func TestRestartsOfAnInterimOwnerAreKept(t *testing.T) {
	tier.Slow(t)
	for name, isLazy := range map[string]bool{"": false, "it reads the memories before it knows that its lease has ended": true} {
		t.Run(name, func(t *testing.T) { testInterimOwner(t, isLazy) })
	}
}

func testInterimOwner(t *testing.T, isLazy bool) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := func() fleet.Targets { // its driver does not detect restarts by others
			all := w.targets(1)
			all.Units[crippled] = restart.Unit{Driver: blind{driver{world: w, target: crippled}, new(string)}, Revision: "1"}
			return all
		}
		one := start(t, "one", b, targets())
		time.Sleep(time.Minute)
		one.backend.isCut.Store(true)
		time.Sleep(2 * coord.DefaultTTL)
		two := start(t, "two", b, targets())
		time.Sleep(time.Minute)
		w.cripple(crippled, 0)
		time.Sleep(2 * time.Minute)
		s, _ := two.engine.Target(crippled)
		if s.Instance.Restarts < 3 {
			t.Fatalf("the interim owner has restarted it %d times", s.Instance.Restarts)
		}
		two.stop()
		one.backend.isLazy.Store(isLazy)
		one.backend.isCut.Store(false)
		time.Sleep(coord.DefaultTTL)
		if now, _ := one.engine.Target(crippled); now.Instance.Restarts < s.Instance.Restarts {
			t.Errorf("%d restarts are known of %d", now.Instance.Restarts, s.Instance.Restarts)
		}
	})
}

// An engine that gets its shards back restarts nothing before it knows the restarts that another engine has made
// meanwhile.
func TestRestartsWaitForMemories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(1))
		time.Sleep(time.Minute)
		one.backend.isCut.Store(true)
		time.Sleep(2 * coord.DefaultTTL)
		one.backend.isRefusing.Store(true)
		one.backend.isCut.Store(false)
		w.infect(crippled, 0)
		time.Sleep(time.Minute)
		if owned, _ := one.co.Owned(); owned[shard.Of(crippled)].Token == 0 || !one.co.Allowed() {
			t.Fatal("it has not got its shards back")
		}
		if asked, _ := w.counts(crippled + "#0"); asked != 0 {
			t.Errorf("it was asked %d times to terminate", asked)
		}
		one.backend.isRefusing.Store(false)
		time.Sleep(time.Minute)
		if asked, ended := w.counts(crippled + "#0"); asked != 1 || ended != 1 {
			t.Errorf("it was asked %d times, and ended %d times", asked, ended)
		}
	})
}

// A shard with a target whose memory is too large to be stored completely is given up nevertheless.
func TestAShardWithATooLargeMemoryIsGivenUp(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		moving := ""
		for i, assigned := 0, shard.Assign([]string{"one", "two"}); moving == ""; i++ {
			if target := fmt.Sprintf("shop/web-%d", i); assigned[shard.Of(target)] == "two" {
				moving = target
			}
		}
		const large = 900 // probes, of which about 250 fit into coord.MaxMemory
		targets := func() fleet.Targets {
			all := w.targets(many)
			p := all.Probes[probe.ID{Target: moving, Kind: probe.Readiness}]
			p.Rule.Period = time.Minute
			for i := range large {
				all.Probes[probe.ID{Target: moving, Kind: probe.Readiness, Name: fmt.Sprintf("%0*d", probe.MaxProbeName, i)}] = p
			}
			return all
		}
		one := start(t, "one", b, targets())
		time.Sleep(time.Minute)
		two := start(t, "two", b, targets())
		time.Sleep(time.Minute)
		if n, m := one.probes(), two.probes(); n+m != many*3/2+large || m < large {
			t.Errorf("the engines have %d and %d probes", n, m)
		}
		anew := map[string]bool{} // each is published as undecided, and then as failing
		for _, failed := range *two.failures.Load() {
			id, _, _ := strings.Cut(failed, " ")
			anew[id] = true
		}
		if len(anew) == 0 || len(anew) >= large {
			t.Errorf("%d probes have begun anew", len(anew))
		}
	})
}
