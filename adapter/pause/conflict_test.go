package pause

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/tests/tier"
)

// forgetful is a coord.Backend that makes changes and may not answer.
type forgetful struct {
	coord.Backend
	isSilent     atomic.Bool                 // Commit makes changes of pauses, and returns an error
	begins, ends atomic.Pointer[chan func()] // Commit passes a function that lets it begin, or end
}

func (f *forgetful) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if !strings.HasPrefix(all[0].Then[0].Key, "pause/") {
		return f.Backend.Commit(ctx, all...)
	}
	wait(f.begins.Load())
	made, err := f.Backend.Commit(ctx, all...)
	wait(f.ends.Load())
	if f.isSilent.Load() {
		return nil, errCut
	}
	return made, err
}

// wait passes a function to a channel, if there is one, and returns when that is called.
func wait(at *chan func()) {
	if at != nil {
		called := make(chan struct{})
		*at <- func() { close(called) }
		<-called
	}
}

// saved returns an engine's state file as a later one reads it.
func saved(t *testing.T, k *Keeper) (orders map[string]Order) {
	t.Helper()
	b, err := json.Marshal(k.Orders())
	if err == nil {
		err = json.Unmarshal(b, &orders)
	}
	if err != nil {
		t.Fatal(err)
	}
	return orders
}

// kill ends an engine that cannot leave any more.
func (s *sharer) kill() {
	s.backend.isCut.Store(true)
	s.stop()
}

// checkStored checks that engines have stored their orders about a target.
func checkStored(t *testing.T, target string, all ...*sharer) {
	t.Helper()
	synctest.Wait()
	for _, s := range all {
		if n := s.unsaved(time.Minute, target); n != 0 {
			t.Errorf("%s is not stored by %s", target, s.config.Coordinator.Name())
		}
	}
}

// Another engine changes the pause while this one has no answer yet that its own is stored.
func TestAnotherEnginesOrderIsNotLostWhileOneIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &forgetful{Backend: coord.NewLocal()}
		one, two := shareTwo(t, slow, slow.Backend)
		held := make(chan func(), 9)
		slow.ends.Store(&held)
		one.order("web", time.Hour)
		answer := <-held
		checkPaused(t, "before the answer", "web", true, one, two)
		two.unpause("web")
		two.order("web", 0)
		checkStored(t, "web", two)
		slow.ends.Store(nil)
		answer()
		time.Sleep(2 * time.Hour)
		checkPaused(t, "after the other pause began", "web", true, one, two)
		checkStored(t, "web", one, two)
	})
}

// An operator ends a pause while this engine has no answer yet that it is stored.
func TestAnOrderIsNotLostWhileTheOneBeforeIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &forgetful{Backend: coord.NewLocal()}
		one, two := shareTwo(t, slow, slow.Backend)
		held := make(chan func(), 9)
		slow.begins.Store(&held)
		one.order("web", time.Hour)
		begin := <-held
		slow.begins.Store(nil)
		slow.ends.Store(&held)
		one.unpause("web")
		begin()
		answer := <-held
		checkPaused(t, "before the answer", "web", true, two)
		slow.ends.Store(nil)
		answer()
		time.Sleep(time.Minute)
		checkPaused(t, "after it", "web", false, one, two)
		checkStored(t, "web", one)
	})
}

// What another engine has stored is not replaced by a request that was made before that.
func TestALateRequestReplacesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &forgetful{Backend: coord.NewLocal()}
		one, two := shareTwo(t, slow, slow.Backend)
		held := make(chan func(), 9)
		slow.begins.Store(&held)
		one.order("web", time.Minute)
		begin := <-held
		slow.begins.Store(nil)
		two.order("web", 0)
		checkStored(t, "web", two)
		begin()
		time.Sleep(time.Hour)
		checkPaused(t, "after the end of the late one", "web", true, one, two)
		checkStored(t, "web", one)
	})
}

// A pause that has ended by itself before it could be stored ends no pause of another engine.
func TestAPauseThatEndsUnstoredEndsNoLongerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		one, two := shareTwo(t, b, b)
		one.backend.isCut.Store(true)
		time.Sleep(time.Minute)
		one.order("web", time.Minute)
		two.order("web", 0)
		time.Sleep(10 * time.Minute)
		checkPaused(t, "while it is cut off", "web", false, one)
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		checkPaused(t, "when it is back", "web", true, one, two)
		checkStored(t, "web", one, two)
	})
}

// A pause whose storing was not answered, and that was ended at another engine, does not begin again.
func TestAnUnansweredPauseDoesNotBeginAgain(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			silent := &forgetful{Backend: coord.NewLocal()}
			one, two := shareTwo(t, silent, silent.Backend)
			silent.isSilent.Store(true)
			one.order("web", 0)
			if began := time.Now(); one.unsaved(time.Minute, "web") != 0 || time.Since(began) >= time.Second {
				t.Errorf("it was said to be stored after %v", time.Since(began))
			}
			checkPaused(t, "though it was not answered", "web", true, one, two)
			state := saved(t, one.Keeper)
			one.backend.isCut.Store(true)
			two.unpause("web")
			time.Sleep(time.Minute)
			silent.isSilent.Store(false)
			if restarts {
				one.stop()
				one = share(t, "one", silent.Backend, state)
			} else {
				one.backend.isCut.Store(false)
			}
			time.Sleep(time.Minute)
			checkPaused(t, fmt.Sprint("after the end elsewhere, with a restart: ", restarts), "web", false, one, two)
			checkStored(t, "web", one, two)
		})
	}
}

// The engine learns neither by the answer nor by the watch that its pause was stored, before that is ended elsewhere.
func TestAPauseOfWhichNothingWasHeardDoesNotBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := &forgetful{Backend: coord.NewLocal()}
		one, two := shareTwo(t, silent, silent.Backend)
		held := make(chan func(), 9)
		silent.begins.Store(&held)
		one.order("web", 0)
		begin := <-held
		silent.begins.Store(nil)
		silent.isSilent.Store(true)
		one.backend.isCut.Store(true)
		begin()
		checkPaused(t, "though it was not answered", "web", true, one, two)
		two.unpause("web")
		time.Sleep(time.Minute)
		silent.isSilent.Store(false)
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		checkPaused(t, "after the end elsewhere", "web", false, one, two)
		checkStored(t, "web", one, two)
	})
}

// An end, and a pause that replaces another, that could not be stored are not lost with the engine.
func TestWhatIsNotStoredOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		one, two := shareTwo(t, b, b)
		two.order("web", 0)
		two.order("db", 0)
		checkStored(t, "web", two)
		checkStored(t, "db", two)
		one.backend.isCut.Store(true)
		time.Sleep(time.Minute)
		one.unpause("web")
		one.order("db", time.Hour)
		state := saved(t, one.Keeper)
		one.stop()
		three := share(t, "one", b, state)
		time.Sleep(time.Minute)
		checkPaused(t, "after a restart", "web", false, two, three)
		time.Sleep(time.Hour)
		checkPaused(t, "after its end", "db", false, two, three)
		checkStored(t, "web", three)
		checkStored(t, "db", three)
	})
}

// A store that was restored from a backup has lost pauses and ends of such: they are stored again.
func TestPausesOutliveARestoreOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRestorable()
		one, two := shareTwo(t, b, b)
		one.order("web", 0)
		checkStored(t, "web", one)
		backup := b.backup(t)
		two.unpause("web")
		two.order("db", time.Hour)
		checkStored(t, "web", two)
		checkStored(t, "db", two)
		b.restore(t, backup)
		time.Sleep(time.Minute)
		three := share(t, "three", b, nil)
		time.Sleep(time.Minute)
		checkPaused(t, "after a restore", "web", false, one, two, three)
		checkPaused(t, "after a restore", "db", true, one, two, three)
		time.Sleep(time.Hour)
		checkPaused(t, "after its end", "db", false, one, two, three)
		checkStored(t, "web", one, two, three)
	})
}

// An order by an engine that knows only what a restored store has is not replaced by what another engine knew before.
func TestAnOrderAfterARestoreIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRestorable()
		one := share(t, "one", b, nil)
		time.Sleep(time.Minute)
		one.order("web", 0)
		checkStored(t, "web", one)
		backup := b.backup(t)
		for range 2 {
			one.unpause("web")
			one.order("web", time.Hour)
		}
		one.unpause("web")
		checkStored(t, "web", one)
		one.backend.isCut.Store(true)
		time.Sleep(time.Minute)
		b.restore(t, backup)
		three := share(t, "three", b, nil)
		time.Sleep(time.Minute)
		three.unpause("web")
		three.order("web", 0)
		checkStored(t, "web", three)
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		checkPaused(t, "when the other engine is back", "web", true, one, three)
	})
}

// A pause that a store that was restored has lost is not ended by an operator who could not know of it.
func TestALostPauseIsNotEndedWithoutKnowingIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRestorable()
		one := share(t, "one", b, nil)
		time.Sleep(time.Minute)
		one.order("web", time.Hour)
		checkStored(t, "web", one)
		backup := b.backup(t)
		one.order("web", 0)
		checkStored(t, "web", one)
		one.backend.isCut.Store(true)
		time.Sleep(time.Minute)
		b.restore(t, backup)
		three := share(t, "three", b, nil)
		time.Sleep(time.Minute)
		three.unpause("web")
		checkStored(t, "web", three)
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		checkPaused(t, "when the other engine is back", "web", true, one, three)
		one.unpause("web")
		checkStored(t, "web", one)
		checkPaused(t, "after another end", "web", false, one, three)
	})
}

// A target is removed and added again, and paused by other orders, while an engine is cut off.
func TestAnOrderAboutATargetThatIsAddedAgainIsNotLost(t *testing.T) {
	for what, isEnded := range map[string]bool{"paused before": false, "with the end of a pause before": true} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := coord.NewLocal()
				one, two := share(t, "one", b, nil), share(t, "two", b, nil)
				time.Sleep(time.Minute)
				one.order("web", time.Minute)
				if isEnded {
					one.unpause("web")
				}
				checkStored(t, "web", one)
				two.backend.isCut.Store(true)
				time.Sleep(2 * time.Minute)
				all, _, err := b.Range(t.Context(), "pause/")
				if err != nil || len(all) != 1 {
					t.Fatal(all, err)
				}
				if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: all[0].Key, Delete: true}}}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				one.order("web", 0)
				checkStored(t, "web", one)
				two.backend.isCut.Store(false)
				time.Sleep(time.Minute)
				checkPaused(t, "when the other engine is back", "web", true, one, two)
			})
		})
	}
}

// seeds is how many random runs there are.
var seeds = tier.Flag("seeds", 8, 25, 500, "random runs of TestEnginesAgreeAboutPauses")

// Orders are given at random, answers are lost, engines are cut off, killed and started again with their state files,
// and the store is restored from backups. In the end, all engines do what the store says, and all is stored.
func TestEnginesAgreeAboutPauses(t *testing.T) {
	tier.Slow(t)
	for seed := range uint64(seeds()) {
		synctest.Test(t, func(t *testing.T) { playOrders(t, rand.New(rand.NewPCG(seed, 1))) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func playOrders(t *testing.T, random *rand.Rand) {
	b := newRestorable()
	silent := &forgetful{Backend: b}
	names, targets := []string{"one", "two", "three"}, []string{"web", "db"}
	engines := map[string]*sharer{}
	for _, name := range names {
		engines[name] = share(t, name, silent, nil)
	}
	backup := b.backup(t)
	pick := func(of []string) string { return of[random.IntN(len(of))] }
	for range 60 {
		time.Sleep(time.Duration(random.Int64N(int64(20 * time.Second))))
		name := pick(names)
		s, target := engines[name], pick(targets)
		switch random.IntN(9) {
		case 0, 1:
			p := Pause{At: time.Now(), By: name}
			if random.IntN(2) == 0 {
				p.Until = p.At.Add(time.Duration(random.Int64N(int64(5 * time.Minute))))
			}
			if _, err := s.Pause(target, p); err != nil {
				t.Fatal(err)
			}
		case 2, 3:
			if _, err := s.Unpause(target, name); err != nil {
				t.Fatal(err)
			}
		case 4:
			s.backend.isCut.Store(!s.backend.isCut.Load())
		case 5:
			silent.isSilent.Store(!silent.isSilent.Load())
		case 6:
			state := saved(t, s.Keeper)
			s.kill()
			engines[name] = share(t, name, silent, state)
		case 7:
			backup = b.backup(t)
		case 8:
			if random.IntN(3) == 0 {
				b.restore(t, backup)
			}
		}
	}
	silent.isSilent.Store(false)
	for _, s := range engines {
		s.backend.isCut.Store(false)
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	for _, target := range targets {
		stored := b.order(t, target)
		for _, name := range names {
			s := engines[name]
			checkPaused(t, "in the end", target, stored.isInForce(time.Now()), s)
			s.pausesMu.Lock()
			r := s.shared.records[target]
			s.pausesMu.Unlock()
			if r.unsaved || !r.latest.is(stored) && stored.Number > 0 {
				t.Errorf("%s has %+v of %s, the store %+v", name, r, target, stored)
			}
		}
	}
}
