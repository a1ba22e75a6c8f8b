package fleet_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// seen returns a target as an engine of the fleet shows it, and whether the engine owns it.
func (m *member) seen(target string) (st engine.TargetStatus, isOwn bool) {
	m.Helper()
	if st, isOwn = m.engine.Target(target); isOwn {
		return st, true
	}
	st, ok := m.fleet.Others().Target(target)
	if !ok {
		m.Errorf("%s shows no target %s", m.co.Name(), target)
	}
	return st, false
}

// checkSeen checks that each engine shows the actual state of all targets, each in one of its two engine.Engines.
func checkSeen(t *testing.T, w *world, engines ...*member) {
	t.Helper()
	for _, m := range engines {
		own, others := m.engine.Count(t.Context(), engine.Filter{}), m.fleet.Others().Count(t.Context(), engine.Filter{})
		if own+others != many {
			t.Errorf("%s shows %d targets of its own and %d of others", m.co.Name(), own, others)
		}
		for i := range many {
			target := fmt.Sprintf("shop/web-%d", i)
			st, isOwn := m.seen(target)
			if st.Ready == w.isSick(target) || isOwn != (m.co.OwnerOf(target) == m.co.Name()) {
				t.Errorf("%s shows %s of %q as %v, its own: %v", m.co.Name(), target, m.co.OwnerOf(target), st.State, isOwn)
			}
			if in := w.running(target); i%2 == 0 && st.Instance.ID != in.id {
				t.Errorf("%s shows the instance %s of %s, which is %s", m.co.Name(), st.Instance.ID, target, in.id)
			}
		}
	}
}

func TestEachEngineShowsTheTargetsOfAll(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two, three := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many)), start(t, "three", b, w.targets(many))
		time.Sleep(time.Minute)
		checkSeen(t, w, one, two, three)
		for i := 1; i < many; i += 2 { // they have no driver and stay sick
			w.infect(fmt.Sprintf("shop/web-%d", i), 0)
		}
		time.Sleep(10 * time.Second)
		checkSeen(t, w, one, two, three)
		for i := 0; i < many; i += 2 {
			w.infect(fmt.Sprintf("shop/web-%d", i), 0)
		}
		time.Sleep(time.Minute)
		checkSeen(t, w, one, two, three)
		three.kill()
		time.Sleep(coord.DefaultTTL + 5*time.Second)
		checkSeen(t, w, one, two)
	})
}

// Each attempt fails with a different detail. The detail that decided the verdict is shown, also by the next owner,
// until the verdict changes, and no later attempt is stored.
func TestWhyATargetOfAnotherEngineFailsIsShown(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := w.targets(many)
		one, two, three := start(t, "one", b, targets), start(t, "two", b, targets), start(t, "three", b, targets)
		time.Sleep(time.Minute)
		ours, theirs := two.anyOwned(), three.anyOwned()
		w.infect(ours, 0)
		w.infect(theirs, 0)
		time.Sleep(10 * time.Second)
		want := map[string]engine.Cause{}
		for _, target := range []string{ours, theirs} {
			st, isOwn := one.seen(target)
			if isOwn || st.Cause.Reason != "test.sick" || !strings.HasPrefix(st.Cause.Detail, "since ") {
				t.Fatalf("%s fails because of %+v, its own: %v", target, st.Cause, isOwn)
			}
			want[target] = st.Cause
		}
		writes := func() int64 {
			return one.backend.writes.Load() + two.backend.writes.Load() + three.backend.writes.Load()
		}
		before := writes()
		time.Sleep(time.Minute)
		if n := writes() - before; n > 0 {
			t.Errorf("attempts were stored by %d requests", n)
		}
		three.kill()
		time.Sleep(time.Minute)
		for target, cause := range want {
			if st, isOwn := one.seen(target); !isOwn && st.Cause != cause {
				t.Errorf("%s fails because of %+v after %+v", target, st.Cause, cause)
			}
		}
		w.heal(ours)
		time.Sleep(10 * time.Second)
		if st, _ := one.seen(ours); !st.Ready || st.Cause != (engine.Cause{}) {
			t.Errorf("%s is %v because of %+v", ours, st.State, st.Cause)
		}
	})
}

// TestATargetThatMovesIsAlwaysShown lets an engine join, and follows all targets of the existing one.
func TestATargetThatMovesIsAlwaysShown(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(many))
		time.Sleep(time.Minute)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		sub := one.engine.SubscribeTargets()
		defer sub.Close()
		var moved atomic.Int64
		go func() {
			for {
				st, err := sub.Next(ctx)
				if err != nil {
					return
				}
				if !st.Removed {
					continue
				}
				moved.Add(1)
				if st, ok := one.fleet.Others().Target(st.Target); !ok || !st.Ready {
					t.Errorf("%s has left, and is shown as %v, %v", st.Target, st.State, ok)
				}
			}
		}()
		two := start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		if n := moved.Load(); n < many/4 {
			t.Errorf("%d targets have moved", n)
		}
		checkSeen(t, w, one, two)
	})
}

func TestWhatOthersHaveFoundStaysWhileTheStoreIsAway(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute + coord.DefaultTTL/10) // not when the lease is renewed
		theirs := two.anyOwned()
		one.backend.isCut.Store(true)
		heard := one.fleet.Heard()
		if age := time.Since(heard); age > coord.DefaultTTL {
			t.Errorf("it has heard of the store %v ago", age)
		}
		time.Sleep(time.Minute)
		if st, isOwn := one.seen(theirs); isOwn || !st.Ready || !one.fleet.Heard().Equal(heard) {
			t.Errorf("%s is shown as %v, its own: %v, and was heard of %v ago", theirs, st.State, isOwn, time.Since(one.fleet.Heard()))
		}
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		checkSeen(t, w, one, two)
	})
}

// anyOwned returns a target without a driver that the engine owns.
func (m *member) anyOwned() string {
	m.Helper()
	for i := 1; i < many; i += 2 {
		if target := fmt.Sprintf("shop/web-%d", i); m.co.OwnerOf(target) == m.co.Name() {
			return target
		}
	}
	m.Fatalf("%s owns no target without a driver", m.co.Name())
	return ""
}

func TestAStoreThatRefusesRequestsIsAskedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute + coord.DefaultTTL/10) // not when the lease is renewed
		one.backend.isRefusing.Store(true)
		one.backend.isCut.Store(true)
		w.infect(two.anyOwned(), time.Hour)
		time.Sleep(coord.DefaultTTL / 2) // its lease is valid
		one.backend.isCut.Store(false)
		time.Sleep(10 * time.Second)
		if n := one.backend.refused.Load(); n < 5 || n > 15 {
			t.Errorf("the store was asked %d times in ten seconds", n)
		}
		if age := time.Since(one.fleet.Heard()); age < 10*time.Second {
			t.Errorf("what it shows is said to be %v old", age)
		}
		one.backend.isRefusing.Store(false)
		time.Sleep(10 * time.Second)
		checkSeen(t, w, one, two)
		if age := time.Since(one.fleet.Heard()); age > coord.DefaultTTL {
			t.Errorf("what it shows is said to be %v old", age)
		}
	})
}

// A store that was restored from a snapshot has lower revisions than the one that is watched from.
func TestWhatOthersHaveStoredIsReadAgainWithAnotherLease(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		target := two.anyOwned()
		one.backend.isSilent.Store(true)
		w.infect(target, 0)
		time.Sleep(time.Minute)
		if st, isOwn := one.seen(target); isOwn || !st.Ready {
			t.Fatalf("the watch is not silent: %s is %v, its own: %v", target, st.State, isOwn)
		}
		one.backend.isSilent.Store(false)
		lease, _ := one.co.Lease()
		if err := b.Revoke(t.Context(), lease); err != nil { // like a restored store that does not have the lease
			t.Fatal(err)
		}
		time.Sleep(coord.DefaultTTL)
		checkSeen(t, w, one, two)
	})
}

// TestNoShardIsReadWhenATargetOfAnotherEngineChanges counts the requests of an engine that shows many targets.
func TestNoShardIsReadWhenATargetOfAnotherEngineChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		targets := w.targets(many)
		one, two := start(t, "one", b, targets), start(t, "two", b, targets)
		time.Sleep(time.Minute)
		before := one.backend.loads.Load()
		for i := 1; i < many; i += 2 { // they have no driver and stay sick
			w.infect(fmt.Sprintf("shop/web-%d", i), 0)
		}
		time.Sleep(10 * time.Second)
		checkSeen(t, w, one, two)
		if err := one.fleet.Apply(w.targets(many)); err != nil { // a reload that changes no targets
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		checkSeen(t, w, one, two)
		if n := one.backend.loads.Load() - before; n > 0 {
			t.Errorf("memories were read by %d requests", n)
		}
		more := w.targets(many)
		for id, p := range more.Probes {
			if id.Target == two.anyOwned() {
				p.Rule.FailureThreshold++
				more.Probes[id] = p
			}
		}
		if err := one.fleet.Apply(more); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		checkSeen(t, w, one, two)
		if n := one.backend.loads.Load() - before; n > 0 {
			t.Errorf("after a reload that changes one target of another engine memories were read by %d requests", n)
		}
	})
}

func TestAReloadChangesTheTargetsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		fewer := w.targets(many)
		for i := range many / 2 {
			target := fmt.Sprintf("shop/web-%d", i)
			delete(fewer.Units, target)
			delete(fewer.Probes, probe.ID{Target: target, Kind: probe.Readiness})
			delete(fewer.Probes, probe.ID{Target: target, Kind: probe.Liveness})
		}
		for _, m := range []*member{one, two} {
			if err := m.fleet.Apply(fewer); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		own, others := one.engine.Count(t.Context(), engine.Filter{}), one.fleet.Others().Count(t.Context(), engine.Filter{})
		if own+others != many/2 || others == 0 {
			t.Errorf("%d targets of its own and %d of others are left", own, others)
		}
		for i := many / 2; i < many; i++ {
			if st, _ := one.seen(fmt.Sprintf("shop/web-%d", i)); !st.Ready {
				t.Errorf("%s in shard %v is %v", st.Target, shard.Of(st.Target), st.State)
			}
		}
	})
}

// lagging is a coord.Backend whose changes of memories can be delivered late.
type lagging struct {
	coord.Backend
	isBehind  atomic.Bool
	wasBehind bool // its own watch is behind
}

func (b *lagging) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		for events, err := range b.Backend.Watch(ctx, prefix, after) {
			for prefix == "memory/" && b.isBehind.Load() && ctx.Err() == nil {
				b.wasBehind = true
				time.Sleep(100 * time.Millisecond)
			}
			for one := range slices.Chunk(events, 1) {
				if !yield(one, nil) {
					return
				}
				if prefix == "memory/" && b.wasBehind { // one by one
					time.Sleep(10 * time.Millisecond)
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// The watch of an engine is behind when it updates its shown targets: it does not show an earlier verdict again.
func TestATargetOfAnotherEngineDoesNotGoBackToAnEarlierVerdict(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), &lagging{Backend: coordtest.NewLocal()}
		start(t, "one", b.Backend, w.targets(many))
		two := start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		ready := probe.ID{Target: "shop/web-1", Kind: probe.Readiness}
		for i := 1; ; i += 2 { // targets without a driver
			ready.Target = fmt.Sprintf("shop/web-%d", i)
			if _, exists := two.fleet.Others().Status(ready); exists {
				break
			}
		}
		b.isBehind.Store(true)
		w.infect(ready.Target, 0)
		time.Sleep(10 * time.Second)
		w.heal(ready.Target)
		time.Sleep(10 * time.Second)
		targets := w.targets(many)
		for id, p := range targets.Probes {
			p.Settings = "other"
			targets.Probes[id] = p
		}
		if err := two.fleet.Apply(targets); err != nil { // so that all targets are shown differently
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		sub := two.fleet.Others().Subscribe()
		defer sub.Close()
		b.isBehind.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		verdicts := []probe.Verdict{probe.Passing}
		for st, err := sub.Next(ctx); err == nil; st, err = sub.Next(ctx) {
			if st.ID == ready && st.Verdict != verdicts[len(verdicts)-1] {
				verdicts = append(verdicts, st.Verdict)
			}
		}
		if want := []probe.Verdict{probe.Passing, probe.Failing, probe.Passing}; !slices.Equal(verdicts, want) {
			t.Errorf("%v is shown as %v, want %v", ready, verdicts, want)
		}
	})
}

// stale returns the targets that an engine shows as stale.
func (m *member) stale() (all []string) {
	isStale := m.fleet.Stale()
	for i := range many {
		if target := fmt.Sprintf("shop/web-%d", i); isStale != nil && isStale(target) {
			all = append(all, target)
		}
	}
	return all
}

func TestWhatIsNotHeardForALeaseIsStale(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		one.runGroups(map[string]group.Rule{"web": {}})
		time.Sleep(time.Minute)
		one.backend.isCut.Store(true)
		time.Sleep(coord.DefaultTTL / 2)
		if all := one.stale(); len(all) > 0 {
			t.Errorf("after half a lease %v are stale", all)
		}
		time.Sleep(coord.DefaultTTL)
		all := one.stale()
		if n := one.fleet.Others().Count(t.Context(), engine.Filter{}); len(all) != n || n < many/4 {
			t.Errorf("%d of %d targets of the other engine are stale", len(all), n)
		}
		for _, target := range all {
			if m := one.groups.Get("web").View().Member(target); !m.InRotation || one.owns(target) {
				t.Errorf("%s is stale, its own: %v, and in rotation: %v", target, one.owns(target), m.InRotation)
			}
		}
		if all := two.stale(); len(all) > 0 {
			t.Errorf("the engine that has taken all over shows as stale: %v", all)
		}
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		if all := one.stale(); len(all) > 0 {
			t.Errorf("when the store is back %v are stale", all)
		}
	})
}

// A shard whose key was put by another program has no owner.
func TestATargetWithoutALivingOwnerIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		target := two.anyOwned()
		key := "fleet/shard/" + shard.Of(target).String()
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: key, Delete: true}, {Key: key, Value: []byte("nobody/7")}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * coord.DefaultTTL)
		for _, m := range []*member{one, two} {
			if all := m.stale(); !slices.Equal(all, []string{target}) {
				t.Errorf("%s shows as stale: %v", m.co.Name(), all)
			}
			if st, isOwn := m.seen(target); isOwn || !st.Ready {
				t.Errorf("%s shows %s as %v, its own: %v", m.co.Name(), target, st.State, isOwn)
			}
		}
	})
}

func TestATargetThatMovesIsNeverStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		three := start(t, "three", b, w.targets(many))
		for i := range 2000 {
			if i == 1000 {
				three.stop()
			}
			if all := append(one.stale(), two.stale()...); len(all) > 0 {
				t.Fatalf("after %v these are stale: %v", time.Duration(i)*10*time.Millisecond, all)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// batching is a coord.Backend whose watches can deliver changes late, all at once.
type batching struct {
	coord.Backend
	isBehind atomic.Bool
}

func (b *batching) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		var late []coord.Event
		for events, err := range b.Backend.Watch(ctx, prefix, after) {
			if late = append(late, events...); prefix == "memory/" && b.isBehind.Load() && err == nil {
				continue
			}
			if !yield(late, err) || err != nil {
				return
			}
			late = nil
		}
	}
}

// A target fails and recovers before either change is delivered to another engine.
func TestOfSeveralMemoriesTheLastIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), &batching{Backend: coordtest.NewLocal()}
		one, two := start(t, "one", b.Backend, w.targets(many)), start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		var targets []string
		for i := 1; i < many; i += 2 { // targets without a driver
			if target := fmt.Sprintf("shop/web-%d", i); one.owns(target) {
				targets = append(targets, target)
			}
		}
		healed, last := targets[0], targets[1]
		b.isBehind.Store(true)
		w.infect(healed, 0)
		time.Sleep(10 * time.Second)
		w.heal(healed)
		time.Sleep(10 * time.Second)
		b.isBehind.Store(false)
		w.infect(last, 0)
		time.Sleep(10 * time.Second)
		if st, isOwn := two.seen(healed); isOwn || st.Gateway != probe.GatewayReady {
			t.Errorf("%s is shown as %v to gateways, its own: %v", healed, st.Gateway, isOwn)
		}
		if st, _ := two.seen(last); st.Ready {
			t.Errorf("%s is shown as %v", last, st.State)
		}
	})
}

// An engine that has taken over a shard and cannot load it does not probe its targets.
func TestATargetWhoseOwnerHasNotLoadedItIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(many))
		time.Sleep(time.Minute)
		two := startRefused(t, "two", b, w.targets(many))
		time.Sleep(coord.DefaultTTL / 2)
		if all := one.stale(); len(all) > 0 {
			t.Errorf("after half a lease %v are stale", all)
		}
		time.Sleep(coord.DefaultTTL)
		all := one.stale()
		if n := one.fleet.Others().Count(t.Context(), engine.Filter{}); len(all) != n || n < many/4 {
			t.Errorf("%d of %d targets that nobody probes are stale", len(all), n)
		}
		two.backend.isRefusing.Store(false)
		time.Sleep(10 * time.Second)
		if all := one.stale(); len(all) > 0 {
			t.Errorf("when they are probed %v are stale", all)
		}
		checkSeen(t, w, one, two)
	})
}
