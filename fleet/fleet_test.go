package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

const many = 80 // targets, with 120 probes

func TestAnotherEngineTakesOverWithoutAChangeOfVerdicts(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(many))
		time.Sleep(time.Minute)
		if n := one.probes(); n != many*3/2 {
			t.Fatalf("the only engine has %d probes", n)
		}
		one.forget()
		two := start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		n, m := one.probes(), two.probes()
		if n+m != many*3/2 || min(n, m) < many/4 {
			t.Errorf("the engines have %d and %d probes", n, m)
		}
		if failed := append(*one.failures.Load(), *two.failures.Load()...); len(failed) > 0 {
			t.Errorf("healthy probes were published as failing by an engine that joined: %s", strings.Join(failed[:min(5, len(failed))], ", "))
		}
		one.kill()
		time.Sleep(coord.DefaultTTL + 2*time.Second)
		if n := two.probes(); n != many*3/2 {
			t.Errorf("the engine that is left has %d probes", n)
		}
		time.Sleep(time.Minute)
		if failed := *two.failures.Load(); len(failed) > 0 {
			t.Errorf("healthy probes were published as failing after a kill: %s", strings.Join(failed[:min(5, len(failed))], ", "))
		}
	})
}

func TestAnInstanceIsTerminatedOnceByTheOwner(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one, two := start(t, "one", b, w.targets(many)), start(t, "two", b, w.targets(many))
		time.Sleep(time.Minute)
		for i := range many {
			w.infect(fmt.Sprintf("shop/web-%d", i), 100*time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		one.kill()
		time.Sleep(time.Minute)
		for i := 0; i < many; i += 2 {
			id := fmt.Sprintf("shop/web-%d#0", i)
			if asked, ended := w.counts(id); asked != 1 || ended != 1 {
				t.Errorf("%s was asked %d times, and ended %d times", id, asked, ended)
			}
			if in := w.running(fmt.Sprintf("shop/web-%d", i)); in.n != 1 {
				t.Errorf("%s runs", in.id)
			}
		}
		_ = two
	})
}

func TestAnEngineThatIsCutOffTerminatesNothing(t *testing.T) {
	tier.CI(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(2))
		time.Sleep(time.Minute)
		one.backend.isCut.Store(true)
		time.Sleep(coord.DefaultTTL)
		w.infect("shop/web-0", 0)
		time.Sleep(10 * time.Minute)
		if asked, _ := w.counts("shop/web-0#0"); asked != 0 {
			t.Errorf("it was asked %d times to terminate", asked)
		}
		if s, _ := one.engine.Target("shop/web-0"); s.Instance.Reason != probe.ReasonOwnership {
			t.Errorf("its restart waits because of %q", s.Instance.Reason)
		}
		if s, _ := one.engine.Status(probe.ID{Target: "shop/web-0", Kind: probe.Liveness}); s.Verdict != probe.Failing {
			t.Errorf("it is not probed: %v", s.Verdict)
		}
		one.backend.isCut.Store(false)
		time.Sleep(2 * coord.DefaultTTL)
		if asked, ended := w.counts("shop/web-0#0"); asked != 1 || ended != 1 {
			t.Errorf("it was asked %d times, and ended %d times", asked, ended)
		}
	})
}

func TestAShardMovesAfterTheActsForIt(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coordtest.NewLocal()
		one := start(t, "one", b, w.targets(many))
		time.Sleep(time.Minute)
		theirs := shard.Assign([]string{"one", "two"})
		moving := ""
		for i := 0; i < many; i += 2 {
			if target := fmt.Sprintf("shop/web-%d", i); theirs[shard.Of(target)] == "two" {
				moving = target
			}
		}
		w.infect(moving, 20*time.Second)
		time.Sleep(5 * time.Second)
		if asked, _ := w.counts(moving + "#0"); asked != 1 {
			t.Fatalf("it was asked %d times to terminate", asked)
		}
		two := start(t, "two", b, w.targets(many))
		time.Sleep(10 * time.Second)
		id := probe.ID{Target: moving, Kind: probe.Liveness}
		if _, ok := two.engine.Snapshot(id); ok || two.probes() == 0 {
			t.Errorf("it has moved while it is terminated: %v; %d other probes have", ok, two.probes())
		}
		time.Sleep(time.Minute)
		if _, ok := two.engine.Snapshot(id); !ok {
			t.Error("it has not moved")
		}
		if _, ok := one.engine.Snapshot(id); ok {
			t.Error("it is still there")
		}
		if asked, ended := w.counts(moving + "#0"); asked != 1 || ended != 1 || w.running(moving).n != 1 {
			t.Errorf("it was asked %d times, and ended %d times", asked, ended)
		}
		if m, _ := two.restarts.Memory(moving); m.Exits != 1 || m.LastReason == "" {
			t.Errorf("the next owner does not know how it has ended: %+v", m)
		}
	})
}

// slowStore is a coord.Backend that can take some seconds to store memories.
type slowStore struct {
	coord.Backend
	isSlow atomic.Bool
}

func (b *slowStore) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if strings.HasPrefix(all[0].Then[0].Key, "memory/") && b.isSlow.Load() {
		time.Sleep(4 * time.Second)
	}
	return b.Backend.Commit(ctx, all...)
}

// An act finishes while the earlier memories of its shard are being stored: they are stored again.
func TestAnActThatEndsWhileAShardIsHandedOverIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), &slowStore{Backend: coordtest.NewLocal()}
		one := start(t, "one", b, w.targets(1))
		time.Sleep(time.Minute)
		w.infect(crippled, 20*time.Second)
		time.Sleep(5 * time.Second)
		var two *member
		for n := 0; two == nil; n++ { // until its name gets the shard
			if name := fmt.Sprintf("engine-%d", n); shard.Assign([]string{"one", name})[shard.Of(crippled)] == name {
				two = start(t, name, b.Backend, w.targets(1))
			}
		}
		time.Sleep(10 * time.Second)
		b.isSlow.Store(true)
		w.heal(crippled)
		time.Sleep(2 * time.Second) // this is being stored
		w.infect(crippled, 0)       // and so is this when the act finishes
		time.Sleep(time.Minute)
		if asked, ended := w.counts(crippled + "#0"); asked != 1 || ended != 1 {
			t.Errorf("it was asked %d times to terminate, and has ended %d times", asked, ended)
		}
		if m, _ := two.restarts.Memory(crippled); m.Exits != 1 || m.LastReason == "" || one.probes() > 0 {
			t.Errorf("the next owner does not know how it has ended: %+v", m)
		}
	})
}
