package pause

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/coord/shard"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/tier"
)

// cutOff is a coord.Backend that one engine can be cut off from.
type cutOff struct {
	coord.Backend
	isCut atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cutOff) KeepAlive(ctx context.Context, l coord.Lease) error {
	if c.isCut.Load() {
		return errCut
	}
	return c.Backend.KeepAlive(ctx, l)
}

func (c *cutOff) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if c.isCut.Load() {
		return 0, errCut
	}
	return c.Backend.Grant(ctx, ttl)
}

func (c *cutOff) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if c.isCut.Load() {
		return nil, errCut
	}
	return c.Backend.Commit(ctx, all...)
}

func (c *cutOff) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if c.isCut.Load() {
		return nil, 0, errCut
	}
	return c.Backend.Range(ctx, prefix)
}

func (c *cutOff) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		for events, err := range c.Backend.Watch(ctx, prefix, after) {
			if c.isCut.Load() {
				events, err = nil, errCut
			}
			if !yield(events, err) || err != nil {
				return
			}
		}
	}
}

// sharer is a Keeper of an engine in a fleet, in which all targets but "own" are shared.
type sharer struct {
	*testing.T
	*Keeper
	backend *cutOff
	stop    func()
}

// share starts a Keeper, with pauses of an earlier engine.
func share(t *testing.T, name string, b coord.Backend, restored map[string]Order) *sharer {
	t.Helper()
	cut := &cutOff{Backend: b}
	co, err := coord.New(coord.Config{Name: name, Backend: cut})
	if err != nil {
		t.Fatal(err)
	}
	isShared := func(target string) bool { return target != "own" && target != "none" }
	k := New(Config{Engine: engine.New(engine.Config{}), Others: engine.New(engine.Config{}), Coordinator: co, IsShared: isShared})
	k.config.Engine.Report(probe.Instance{Target: "own", ID: "static", Phase: probe.Running, Since: time.Now(), Managed: true})
	k.Restore(restored)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { co.Run(ctx) })
	running.Go(func() { _ = k.Run(ctx) })
	running.Go(func() { k.Share(ctx) })
	s := &sharer{t, k, cut, func() { cancel(); running.Wait() }}
	t.Cleanup(s.stop)
	return s
}

// shareTwo starts the Keepers of two engines, which have been members of a fleet for a minute.
func shareTwo(t *testing.T, b, other coord.Backend) (one, two *sharer) {
	t.Helper()
	one, two = share(t, "one", b, nil), share(t, "two", other, nil)
	time.Sleep(time.Minute)
	return one, two
}

// checkPaused checks what Keepers have told both of their engines.
func checkPaused(t *testing.T, when, target string, want bool, all ...*sharer) {
	t.Helper()
	synctest.Wait()
	for _, s := range all {
		for _, e := range []*engine.Engine{s.config.Engine, s.config.Others} {
			if got := e.Admin().Suppressed(target) == probe.ReasonPaused; got != want {
				t.Errorf("%s: %s is paused: %v by %s", when, target, got, s.config.Coordinator.Name())
			}
		}
	}
}

// order pauses a target at an engine, without an end if d is 0.
func (s *sharer) order(target string, d time.Duration) Pause {
	s.Helper()
	p := Pause{At: time.Now(), By: "alice", Why: "disk"}
	if d > 0 {
		p.Until = p.At.Add(d)
	}
	if changed, err := s.Pause(target, p); !changed || err != nil {
		s.Fatalf("pausing %s: changed %v, %v", target, changed, err)
	}
	return p
}

// unpause ends the pause of a target at an engine.
func (s *sharer) unpause(target string) {
	s.Helper()
	if changed, err := s.Unpause(target, "bob"); !changed || err != nil {
		s.Fatalf("unpausing %s: changed %v, %v", target, changed, err)
	}
}

// unsaved returns how many of some targets are not stored within a time.
func (s *sharer) unsaved(d time.Duration, targets ...string) int {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	defer cancel()
	return s.Unsaved(ctx, targets)
}

// entries returns the keys that a store has of pauses.
func entries(t *testing.T, b coord.Backend) string {
	t.Helper()
	all, _, err := b.Range(t.Context(), "pause/")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, e := range all {
		keys = append(keys, e.Key)
	}
	return strings.Join(keys, " ")
}

func TestAPauseHoldsInAllEngines(t *testing.T) {
	tier.NoRace(t)
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		one, two := shareTwo(t, b, b)
		want := one.order("web", time.Hour)
		one.order("db", 0)
		if n := one.unsaved(time.Second, "web", "db"); n != 0 || len(one.Orders()) != 0 {
			t.Errorf("%d are not stored, and the state file has %v", n, one.Orders())
		}
		checkPaused(t, "at once", "web", true, one, two)
		one.backend.isCut.Store(true) // it is killed
		one.stop()
		time.Sleep(30 * time.Minute)
		three := share(t, "three", b, nil)
		if three.Knows("web") || !three.Knows("own") {
			t.Error("a pause is known before it was read, or that of a target that is not shared is not")
		}
		<-three.Known()
		checkPaused(t, "after a kill", "web", true, two, three)
		three.pausesMu.Lock()
		p := three.paused["web"]
		three.pausesMu.Unlock()
		if !p.equal(want) || !three.Knows("web") {
			t.Errorf("it is %+v, want %+v", p, want)
		}
		if changed, err := three.Unpause("db", "bob"); !changed || err != nil {
			t.Errorf("unpausing: %v, %v", changed, err)
		}
		checkPaused(t, "after an unpause", "db", false, two, three)
		time.Sleep(time.Until(want.Until) - time.Nanosecond)
		checkPaused(t, "just before its end", "web", true, two, three)
		time.Sleep(time.Nanosecond)
		checkPaused(t, "at its end", "web", false, two, three)
		if keys := entries(t, b); strings.Count(keys, "pause/") != 2 {
			t.Errorf("the store has %q, want the ends of both", keys)
		}
		if !tier.InCI() {
			return // a week takes ten seconds
		}
		time.Sleep(endLife + time.Hour + time.Minute)
		checkPaused(t, "a week later", "web", false, two, three)
		if keys := entries(t, b); keys != "" {
			t.Errorf("the store has %s", keys)
		}
		if n := len(two.shared.records) + len(three.shared.records); n != 0 {
			t.Errorf("%d orders are kept", n)
		}
	})
}

func TestALaterPauseOutlastsTheOneThatItReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		one, two := shareTwo(t, b, b)
		one.order("web", time.Minute)
		time.Sleep(time.Second)
		two.order("web", 0)
		time.Sleep(time.Hour)
		three := share(t, "three", b, nil)
		time.Sleep(time.Minute)
		checkPaused(t, "an hour later", "web", true, one, two, three)
	})
}

// A pause that is ordered while the store is away holds in the engine that was asked, is kept in its state file, and
// reaches the others when the store is back. So does the end of one.
func TestAPauseIsStoredWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		one, two := shareTwo(t, b, b)
		two.order("db", 0)
		checkPaused(t, "before", "db", true, one, two)
		one.backend.isCut.Store(true)
		time.Sleep(time.Minute)
		one.order("web", 0)
		if _, err := one.Unpause("db", "bob"); err != nil {
			t.Error(err)
		}
		if n := one.unsaved(5*time.Second, "web", "db", "own"); n != 2 {
			t.Errorf("%d are not stored", n)
		}
		if all := one.Orders(); len(all) != 2 || all["web"].By != "alice" || !all["db"].IsEnd {
			t.Errorf("the state file has %+v", all)
		}
		checkPaused(t, "while the store is away", "web", true, one)
		checkPaused(t, "while the store is away", "web", false, two)
		checkPaused(t, "while the store is away", "db", false, one)
		one.backend.isCut.Store(false)
		time.Sleep(10 * time.Second)
		checkPaused(t, "when it is back", "web", true, one, two)
		checkPaused(t, "when it is back", "db", false, one, two)
		if n := one.unsaved(time.Second, "web", "db"); n != 0 || len(one.Orders()) != 0 || !one.Knows("web") {
			t.Errorf("%d are not stored, and the state file has %v", n, one.Orders())
		}
	})
}

// The state file of a release before, or of an engine that has ended while the store was away, has pauses of shared targets.
func TestPausesOfTheStateFileAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		one := share(t, "one", b, nil)
		time.Sleep(time.Minute)
		p := Pause{At: time.Now(), By: "alice"}
		two := share(t, "two", b, map[string]Order{"web": {Pause: p}, "own": {Pause: p}})
		time.Sleep(time.Minute)
		checkPaused(t, "after a start", "web", true, one, two)
		checkPaused(t, "after a start", "own", true, two)
		checkPaused(t, "after a start", "own", false, one)
		if all := two.Orders(); len(all) != 1 || all["own"].By != "alice" {
			t.Errorf("the state file has %+v", all)
		}
		two.Keep(func(string) bool { return false }) // a reload by which this engine has no targets
		checkPaused(t, "after a reload", "web", true, one, two)
		checkPaused(t, "after a reload", "own", false, two)
		if _, err := two.Pause("none", p); !errors.Is(err, ErrNoTarget) {
			t.Errorf("pausing what there is not: %v", err)
		}
	})
}

// What a stranger has stored pauses nothing, unless it is an order, of which texts are bounded.
func TestWhatIsStoredIsBounded(t *testing.T) {
	for value, want := range map[string]bool{
		`{"at":"2026-01-01T00:00:00Z","by":"` + strings.Repeat("a", 1000) + `","why":"a\u001bb","number":1,"later":1}`: true,
		`{"at":1,"number":1}`: false, `{`: false, ``: false, `{"by":"a"}`: false, `{"by":"a","number":-1}`: false,
		`{"by":"a","number":9223372036854775807}`: false, `{"number":1,"by":"` + strings.Repeat("a", coord.MaxPause) + `"}`: false,
	} {
		o := unmarshal([]byte(value))
		if (o != Order{}) != want || len(o.By) > maxBy || strings.Contains(o.Why, "\x1b") {
			t.Errorf("%.60s is read as %+v", value, o)
		}
	}
	quotes := strings.Repeat(`"<`, 1000)
	author := strings.Repeat(`"`, maxAuthor)
	o := Order{
		Pause: Pause{At: time.Now(), Until: time.Now(), By: quotes, Why: quotes}.bounded(), IsEnd: true,
		Number: maxNumber, Base: maxNumber, Author: author, Known: maxNumber, KnownAuthor: author,
	}
	if n := len(o.marshal()); n > coord.MaxPause {
		t.Errorf("an order has %d bytes, at most %d can be stored", n, coord.MaxPause)
	}
}

// An order that was not stored when its target was shared is replaced by those that are given when it no longer is.
func TestAnOrderAboutATargetThatIsNoLongerSharedIsReplaced(t *testing.T) {
	restored := map[string]Order{"own": numbered("one/1", 4, forever)}
	for name, c := range map[string]struct {
		order func(s *sharer)
		want  int
	}{
		"an end":        {func(s *sharer) { s.unpause("own") }, 0},
		"another pause": {func(s *sharer) { s.order("own", time.Hour) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := share(t, "one", coord.NewLocal(), restored)
				one.backend.isCut.Store(true)
				c.order(one)
				all := one.Orders()
				if len(all) != c.want || all["own"].Number != 0 {
					t.Errorf("the state file has %+v", all)
				}
			})
		})
	}
}

// What the store has of a target that is no longer shared is deleted by the owner of its shard.
func TestAPauseOfATargetThatIsNoLongerSharedStaysWithoutAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coord.NewLocal()
		one := share(t, "one", b, nil)
		time.Sleep(time.Minute)
		change := coord.Change{Key: "pause/" + shard.Of("own").String() + "/own", Value: numbered("two/1", 4, forever).marshal()}
		commit := func() {
			t.Helper()
			if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{change}}); err != nil {
				t.Fatal(err)
			}
		}
		commit()
		checkPaused(t, "by another engine", "own", true, one)
		one.unpause("own")
		one.order("own", 0)
		change.Value = []byte("damaged")
		commit()
		checkPaused(t, "with an entry that cannot be read", "own", true, one)
		change.Delete = true
		commit()
		checkPaused(t, "without the entry", "own", true, one)
		if all := one.Orders(); len(all) != 1 || all["own"].By != "alice" {
			t.Errorf("the state file has %+v", all)
		}
	})
}
