package coord_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/coordtest"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestConfigsAreChecked(t *testing.T) {
	for want, c := range map[string]coord.Config{
		`name is ""; it must have`:          {},
		`name is "a/b"; it must have`:       {Name: "a/b"},
		"ttl is 1s; it must be at least 2s": {Name: "a", TTL: time.Second},
	} {
		if _, err := coord.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

// run runs a coordinator whose shards are marked as loaded, until end is called or the test ends.
func run(t *testing.T, c coord.Config) (co *coord.Coordinator, end func()) {
	t.Helper()
	return launch(t, c, coordtest.MarkLoaded)
}

// launch is run with a program that uses the coordinator.
func launch(t *testing.T, c coord.Config, program func(context.Context, *coord.Coordinator)) (co *coord.Coordinator, end func()) {
	t.Helper()
	co, err := coord.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { co.Run(ctx) })
	running.Go(func() { program(ctx, co) })
	end = func() { stop(); running.Wait() }
	t.Cleanup(end)
	return co, end
}

func TestTheOnlyEngineOwnsAllAndNeverLosesIt(t *testing.T) {
	tier.Slow(t)
	synctest.Test(t, func(t *testing.T) {
		co, end := run(t, coord.Config{Name: "only", Backend: coordtest.NewLocal()})
		synctest.Wait()
		owned, changed := co.Owned()
		if len(owned) != shard.Count || !co.Allowed() {
			t.Fatalf("it owns %d shards, and may act: %v", len(owned), co.Allowed())
		}
		time.Sleep(24 * time.Hour)
		select {
		case <-changed:
			t.Error("what it owns has changed")
		default:
		}
		if !co.Allowed() {
			t.Error("it may not act")
		}
		end()
		if owned, _ := co.Owned(); owned[0].Token != 0 {
			t.Error("it still has tokens")
		}
	})
}

// frozen is a Backend that can be set either to stop granting and renewing leases, or to hide changes.
type frozen struct {
	*coordtest.Local
	isEnding, isBlind atomic.Bool
}

func (f *frozen) KeepAlive(ctx context.Context, l coord.Lease) error {
	if f.isEnding.Load() {
		return errors.New("frozen")
	}
	return f.Local.KeepAlive(ctx, l)
}

func (f *frozen) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if f.isEnding.Load() {
		return 0, errors.New("frozen")
	}
	return f.Local.Grant(ctx, ttl)
}

func (f *frozen) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		for events, err := range f.Local.Watch(ctx, prefix, after) {
			if f.isBlind.Load() {
				<-ctx.Done()
			}
			if !yield(events, err) {
				return
			}
		}
	}
}

func TestTheDeadlineAndTheTokenEachKeepAStaleOwnerFromActing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{Local: coordtest.NewLocal()}
		a, _ := run(t, coord.Config{Name: "a", Backend: f})
		synctest.Wait()
		f.isEnding.Store(true)
		f.isBlind.Store(true)
		act := func(instance string, want error) {
			t.Helper()
			called := false
			err := a.Acts().Do(t.Context(), coord.Order{Target: "web", Instance: instance}, func(context.Context) error { called = true; return nil })
			if !errors.Is(err, want) || called != (want == nil) {
				t.Errorf("acted: %v, %v, want %v", called, err, want)
			}
		}
		act("1", nil)
		time.Sleep(coord.DefaultTTL - coord.DefaultTTL/10)
		if a.Allowed() {
			t.Error("it may act after its deadline")
		}
		act("2", coord.ErrNotAllowed)
		if entries, _, err := f.Range(t.Context(), "fleet/m/"); err != nil || len(entries) != 1 {
			t.Errorf("the lease has ended before: %v, %v", entries, err)
		}
		a.IgnoreDeadline()
		act("2", nil) // its lease is valid
		time.Sleep(coord.DefaultTTL)
		a.IgnoreDeadline()
		act("3", coord.ErrNotOwner)
	})
}

func TestAnEngineWithoutALeaseGoesOnProbing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozen{Local: coordtest.NewLocal()}
		co, _ := run(t, coord.Config{Name: "a", Backend: f})
		synctest.Wait()
		owns := func(isToken bool) {
			t.Helper()
			owned, _ := co.Owned()
			if o, ok := owned[shard.Of("web")]; len(owned) != shard.Count || !ok || (o.Token != 0) != isToken || co.Allowed() != isToken {
				t.Errorf("it probes %d shards, %+v of web, and may act: %v", len(owned), o, co.Allowed())
			}
		}
		owns(true)
		f.isEnding.Store(true)
		time.Sleep(2 * coord.DefaultTTL)
		owns(false)
		f.isEnding.Store(false)
		time.Sleep(coord.DefaultTTL)
		owns(true)
	})
}

// Engines are cut off, exit, and restart instances at random: no instance is restarted by two engines, and no engine
// restarts one in a shard that another engine owns.
func TestNoInstanceIsRestartedTwiceAtRandom(t *testing.T) {
	for seed := range uint64(tier.Pick(2, 5, 50)) {
		synctest.Test(t, func(t *testing.T) { playFleet(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

// actuator restarts targets, and counts the restarts of each instance.
type actuator struct {
	restartsMu sync.Mutex
	instance   map[string]int
	restarts   map[string]int // by target and instance
}

// restart terminates an instance, unless it is no longer running.
func (a *actuator) restart(target string, instance int) {
	a.restartsMu.Lock()
	defer a.restartsMu.Unlock()
	a.restarts[fmt.Sprint(target, "/", instance)]++
	if a.instance[target] == instance {
		a.instance[target]++
	}
}

func (a *actuator) running(target string) int {
	a.restartsMu.Lock()
	defer a.restartsMu.Unlock()
	return a.instance[target]
}

// chaos is a Backend that does not respond for a while, even after it has made changes.
type chaos struct {
	*coordtest.Local
	random *rand.Rand

	cutMu sync.Mutex
	until time.Time
}

var errChaos = errors.New("no answer")

func (c *chaos) isCut() bool {
	c.cutMu.Lock()
	defer c.cutMu.Unlock()
	return time.Now().Before(c.until)
}

// While c is cut off, Watch delays changes.
func (c *chaos) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		for events, err := range c.Local.Watch(ctx, prefix, after) {
			for c.isCut() && ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
			}
			if !yield(events, err) {
				return
			}
		}
	}
}

func (c *chaos) cut(d time.Duration) {
	c.cutMu.Lock()
	defer c.cutMu.Unlock()
	c.until = time.Now().Add(d)
}

func (c *chaos) KeepAlive(ctx context.Context, l coord.Lease) error {
	if c.isCut() {
		return errChaos
	}
	return c.Local.KeepAlive(ctx, l)
}

// Commit is made late if it is called while it is cut off, as a request of a stalled engine.
func (c *chaos) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	for c.isCut() && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
	}
	made, err := c.Local.Commit(ctx, all...)
	c.cutMu.Lock()
	isLost := c.random.IntN(20) == 0
	c.cutMu.Unlock()
	if err == nil && isLost {
		return nil, errChaos // it was committed
	}
	return made, err
}

func playFleet(t *testing.T, random *rand.Rand) {
	shared := coordtest.NewLocal()
	a := &actuator{instance: map[string]int{}, restarts: map[string]int{}}
	targets := []string{"web", "api", "db", "cache", "mail"}
	var backends []*chaos
	var fleet []*coord.Coordinator
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i := range 3 {
		b := &chaos{Local: shared, random: rand.New(rand.NewPCG(random.Uint64(), 2))}
		co, _ := run(t, coord.Config{Name: fmt.Sprint("engine-", i), Backend: b})
		backends, fleet = append(backends, b), append(fleet, co)
		working.Go(func() {
			for ctx.Err() == nil {
				owned, _ := co.Owned()
				var leaving []shard.ID
				for id, o := range owned {
					if o.Leaving {
						leaving = append(leaving, id)
					}
				}
				_ = co.Release(ctx, leaving...) // it is called again
				for _, target := range targets {
					restartOnce(ctx, co, a, target)
				}
				select {
				case <-time.After(250 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	for range 20 {
		backends[random.IntN(len(backends))].cut(time.Duration(random.Int64N(int64(12 * time.Second))))
		time.Sleep(time.Duration(random.Int64N(int64(4 * time.Second))))
	}
	before := a.running("web")
	time.Sleep(time.Minute)
	if a.running("web") == before {
		t.Error("no engine acts in the end")
	}
	stop()
	working.Wait()
	for instance, n := range a.restarts {
		if n != 1 {
			t.Errorf("%s was restarted %d times", instance, n)
		}
	}
	if !slices.ContainsFunc(fleet, (*coord.Coordinator).Allowed) {
		t.Error("no engine may act")
	}
}

// restartOnce restarts the running instance of a target that always fails.
func restartOnce(ctx context.Context, co *coord.Coordinator, a *actuator, target string) {
	instance := a.running(target)
	_ = co.Acts().Do(ctx, coord.Order{Target: target, Instance: fmt.Sprint(instance)}, func(ctx context.Context) error {
		select {
		case <-time.After(300 * time.Millisecond): // the driver takes its time
		case <-ctx.Done():
			return ctx.Err()
		}
		a.restart(target, instance)
		return nil
	})
}

// hanging is a Backend that does not respond to some requests that change something.
type hanging struct {
	*coordtest.Local
	first, count int64 // the first of these, from 1, and their number
	commits      atomic.Int64
}

func (h *hanging) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if n := h.commits.Add(1); n >= h.first && n < h.first+h.count {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Local.Commit(ctx, all...)
}

func TestAnEngineJoinsAndClaimsAfterRequestsWithoutAnAnswer(t *testing.T) {
	for _, first := range []int64{1, 2, 3} { // the request to join, or those that claim shards
		synctest.Test(t, func(t *testing.T) {
			co, _ := run(t, coord.Config{Name: "a", Backend: &hanging{Local: coordtest.NewLocal(), first: first, count: 2}})
			time.Sleep(10 * coord.DefaultTTL)
			owned, _ := co.Owned()
			if len(owned) != shard.Count || owned[0].Token == 0 {
				t.Errorf("requests %d and %d were lost, and it owns %d shards", first, first+1, len(owned))
			}
		})
	}
}
