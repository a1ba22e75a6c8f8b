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

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/coordtest"
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
	name    string
	backend *cutOff
	stop    func()
}

// share starts a Keeper, with pauses of an earlier engine.
func share(t *testing.T, name string, b coord.Backend, restored map[string]Pause) *sharer {
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
	s := &sharer{t, k, name, cut, func() { cancel(); running.Wait() }}
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
				t.Errorf("%s: %s is paused: %v by %s", when, target, got, s.name)
			}
		}
	}
}

// order pauses a target at an engine, without an end if d is 0.
func (s *sharer) order(target string, d time.Duration) (Pause, Result) {
	s.Helper()
	p := Pause{At: time.Now(), By: "alice", Why: "disk"}
	if d > 0 {
		p.Until = p.At.Add(d)
	}
	r, err := s.pausing(target, p)
	if r.Changed != 1 || err != nil {
		s.Fatalf("pausing %s: %+v, %v", target, r, err)
	}
	return p, r
}

// pausing asks for a pause as an operator does, who waits for five seconds.
func (s *sharer) pausing(target string, p Pause) (Result, error) {
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	return s.Pause(ctx, "", []string{target}, p)
}

// unpause ends the pause of a target at an engine.
func (s *sharer) unpause(target string) error {
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	_, err := s.Unpause(ctx, "", []string{target}, "bob")
	return err
}

// entries returns the entries that a store has of pauses.
func entries(t *testing.T, b coord.Backend) []coord.Entry {
	t.Helper()
	all, _, err := b.Range(t.Context(), "pause/")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAPauseHoldsInAllEngines(t *testing.T) {
	tier.NoRace(t)
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		one, two := shareTwo(t, b, b)
		want, r := one.order("web", time.Hour)
		one.order("db", 0)
		if r.Local != 0 || len(one.Pauses()) != 0 {
			t.Errorf("%+v, and the state file has %v", r, one.Pauses())
		}
		checkPaused(t, "at once", "web", true, one, two)
		one.backend.isCut.Store(true) // it is killed
		one.stop()
		time.Sleep(30 * time.Minute)
		away := &cutOff{Backend: b}
		away.isCut.Store(true)
		three := share(t, "three", away, nil)
		synctest.Wait()
		if three.IsSynced("web") || !three.IsSynced("own") {
			t.Error("a pause is known before it was read, or that of a target that is not shared is not")
		}
		away.isCut.Store(false)
		<-three.Synced()
		checkPaused(t, "after a kill", "web", true, two, three)
		three.pausesMu.Lock()
		p := three.paused["web"]
		three.pausesMu.Unlock()
		if !p.equal(want) || !three.IsSynced("web") {
			t.Errorf("it is %+v, want %+v", p, want)
		}
		if err := three.unpause("db"); err != nil {
			t.Error(err)
		}
		checkPaused(t, "after an unpause", "db", false, two, three)
		time.Sleep(time.Until(want.Until) - time.Nanosecond)
		checkPaused(t, "just before its end", "web", true, two, three)
		time.Sleep(time.Nanosecond)
		checkPaused(t, "at its end", "web", false, two, three)
		four := share(t, "four", b, nil)
		time.Sleep(time.Minute)
		checkPaused(t, "in an engine that starts after its end", "web", false, four)
	})
}

func TestTheLatestPauseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		one, two := shareTwo(t, b, b)
		one.order("web", time.Minute)
		two.order("web", 0)
		time.Sleep(time.Hour)
		three := share(t, "three", b, nil)
		<-three.Synced()
		checkPaused(t, "an hour later", "web", true, one, two, three)
		one.order("web", time.Minute)
		time.Sleep(time.Minute)
		checkPaused(t, "after a shorter one", "web", false, one, two, three)
	})
}

// While the store does not answer, a pause holds in the engine that was asked only, and not for long. What is stored stays.
func TestAPauseIsLocalWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		one, two := shareTwo(t, b, b)
		two.order("db", 0)
		synctest.Wait() // until one has received it
		one.backend.isCut.Store(true)
		time.Sleep(time.Minute)
		if _, r := one.order("web", 0); r.Local != 1 {
			t.Errorf("%+v", r)
		}
		if _, r := one.order("cache", time.Minute); r.Local != 1 {
			t.Errorf("%+v", r)
		}
		if r, err := one.pausing("db", Pause{At: time.Now(), By: "alice"}); !errors.Is(err, errCut) || r.Changed != 0 {
			t.Errorf("replacing what is stored: %+v, %v", r, err)
		}
		if err := one.unpause("db"); !errors.Is(err, errCut) {
			t.Errorf("unpausing what is stored: %v", err)
		}
		if all := one.Pauses(); len(all) != 2 || all["web"].By != "alice" {
			t.Errorf("the state file has %+v", all)
		}
		checkPaused(t, "while the store is away", "web", true, one)
		checkPaused(t, "while the store is away", "web", false, two)
		time.Sleep(2 * time.Minute)
		checkPaused(t, "after its time", "cache", false, one)
		checkPaused(t, "while the store is away", "db", true, one, two)
		time.Sleep(localPause)
		checkPaused(t, "after the time of a local pause", "web", false, one)
		one.order("web", 0)
		if err := one.unpause("web"); err != nil {
			t.Errorf("unpausing what is not stored: %v", err)
		}
		one.order("cache", 0)
		one.backend.isCut.Store(false)
		time.Sleep(time.Minute)
		if _, r := one.order("cache", time.Hour); r.Local != 0 {
			t.Errorf("again, when it is back: %+v", r)
		}
		checkPaused(t, "again, when it is back", "cache", true, one, two)
		checkPaused(t, "when it is back", "web", false, one, two)
		checkPaused(t, "when it is back", "db", true, one, two)
		if !one.IsSynced("web") {
			t.Error("pauses are not known when the store is back")
		}
	})
}

// The state file of an engine has the pauses of its own targets, and local ones of shared targets.
func TestPausesOfTheStateFileHoldInOneEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		one := share(t, "one", b, nil)
		p := Pause{At: time.Now(), By: "alice"}
		two := share(t, "two", b, map[string]Pause{"web": p.atMost(localPause), "own": p})
		time.Sleep(time.Minute)
		checkPaused(t, "after a start", "web", true, two)
		checkPaused(t, "after a start", "own", true, two)
		checkPaused(t, "after a start", "own", false, one)
		two.Keep(func(string) bool { return false }) // a reload by which this engine has no targets
		checkPaused(t, "after a reload", "own", false, two)
		if _, err := two.Pause(t.Context(), "", []string{"none"}, p); !errors.Is(err, ErrNoTarget) {
			t.Errorf("pausing what there is not: %v", err)
		}
	})
}

// A pause that an old backup of the store has comes back, and is ended by hand.
func TestAPauseOfABackupComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		one, two := shareTwo(t, b, b)
		one.order("web", 0)
		backup := entries(t, b)[0]
		if err := two.unpause("web"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{{Key: backup.Key, Value: backup.Value}}}); err != nil {
			t.Fatal(err)
		}
		checkPaused(t, "restored", "web", true, one, two)
		if err := two.unpause("web"); err != nil {
			t.Fatal(err)
		}
		checkPaused(t, "ended", "web", false, one, two)
	})
}

// A pause that a stranger has stored pauses nothing unless it can be read, and its texts are bounded.
func TestWhatIsStoredIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := coordtest.NewLocal()
		one := share(t, "one", b, nil)
		for value, want := range map[string]bool{
			`{"at":"2026-01-01T00:00:00Z","by":"` + strings.Repeat("a", 1000) + `","why":"a\u001bb","later":1}`: true,
			`{"at":"1999-01-01T00:00:00Z","by":"a","until":"1999-01-02T00:00:00Z"}`:                             false, // it has ended
			`{"at":1}`: false, `{`: false, ``: false, `null`: false, `{"by":"` + strings.Repeat("a", maxStored) + `"}`: false,
		} {
			put := coord.Change{Key: coord.PauseKeys.Key("web"), Value: []byte(value)}
			if _, err := b.Commit(t.Context(), coord.Transaction{Then: []coord.Change{put}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			one.pausesMu.Lock()
			p, ok := one.paused["web"]
			one.pausesMu.Unlock()
			if ok != want || len(p.By) > maxBy || strings.Contains(p.Why, "\x1b") {
				t.Errorf("%.60s is read as %+v, %v", value, p, ok)
			}
		}
	})
	quotes := strings.Repeat(`"<`, 1000)
	if n := len((Pause{At: time.Now(), Until: time.Now(), By: quotes, Why: quotes}.bounded()).marshal()); n > maxStored {
		t.Errorf("a pause has %d bytes, at most %d can be stored", n, maxStored)
	}
}
