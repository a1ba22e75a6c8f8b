package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/adapter/fleet"
	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/coord"
	"github.com/sonde-probe/sonde/coord/shard"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// world is what engines probe and restart: each target runs one instance at a time.
type world struct {
	worldMu   sync.Mutex // guards all below
	instances map[string]*instance
	ended     map[string]int // by instance: how often it was terminated
	asked     map[string]int // by instance: how often an engine asked for that
}

type instance struct {
	id   string
	n    int
	sick bool
	gone chan struct{}
	lag  time.Duration // how long it takes to terminate
}

func newWorld() *world {
	return &world{instances: map[string]*instance{}, ended: map[string]int{}, asked: map[string]int{}}
}

func (w *world) running(target string) *instance {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return w.get(target)
}

func (w *world) get(target string) *instance {
	if w.instances[target] == nil {
		w.instances[target] = &instance{id: target + "#0", gone: make(chan struct{})}
	}
	return w.instances[target]
}

func (w *world) infect(target string, lag time.Duration) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	w.get(target).sick, w.get(target).lag = true, lag
}

func (w *world) isSick(target string) bool {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return w.get(target).sick
}

func (w *world) counts(id string) (asked, ended int) {
	w.worldMu.Lock()
	defer w.worldMu.Unlock()
	return w.asked[id], w.ended[id]
}

// end terminates an instance if it runs.
func (w *world) end(target, id string) {
	w.worldMu.Lock()
	w.asked[id]++
	lag := w.get(target).lag
	w.worldMu.Unlock()
	time.AfterFunc(lag, func() {
		w.worldMu.Lock()
		defer w.worldMu.Unlock()
		in := w.get(target)
		if in.id != id {
			return
		}
		w.ended[id]++
		close(in.gone)
		w.instances[target] = &instance{id: fmt.Sprintf("%s#%d", target, in.n+1), n: in.n + 1, gone: make(chan struct{})}
	})
}

// driver is how one engine terminates the instances of a target.
type driver struct {
	world  *world
	target string
}

func (driver) External() {}

func (d driver) Resume(id string) bool { return d.world.running(d.target).id == id }

func (d driver) Run(ctx context.Context, began func(string), end <-chan time.Duration) restart.Exit {
	in := d.world.running(d.target)
	began(in.id)
	for {
		select {
		case <-end:
			d.world.end(d.target, in.id)
		case <-in.gone:
			return restart.Exit{Code: 143}
		case <-ctx.Done():
			return restart.Exit{Code: -1, Err: context.Cause(ctx)}
		}
	}
}

// targets are n targets of a fleet: every other has a driver and a liveness probe, all have a readiness
// probe that fails while the target is sick.
func (w *world) targets(n int) fleet.Targets {
	t := fleet.Targets{Probes: probe.Set{}, Units: map[string]restart.Unit{}}
	for i := range n {
		target := fmt.Sprintf("shop/web-%d", i)
		p := probe.Probe{
			Rule: probe.Rule{Period: time.Second, FailureThreshold: 2}, HandlerName: "test", Revision: "1",
			Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
				if w.isSick(target) {
					return probe.Result{Outcome: probe.Failure, Reason: "test.sick"}
				}
				return probe.Result{Outcome: probe.Success}
			}),
		}
		t.Probes[probe.ID{Target: target, Kind: probe.Readiness}] = p
		var u restart.Unit
		if i%2 == 0 {
			u = restart.Unit{Driver: driver{w, target}, Revision: "1"}
			t.Probes[probe.ID{Target: target, Kind: probe.Liveness}] = p
		}
		t.Units[target] = u
	}
	return t
}

// cutOff is a coord.Backend that one engine can be cut off from.
type cutOff struct {
	coord.Backend
	isCut atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cutOff) err() error {
	if c.isCut.Load() {
		return errCut
	}
	return nil
}

func (c *cutOff) Grant(ctx context.Context, ttl time.Duration) (coord.Lease, error) {
	if err := c.err(); err != nil {
		return 0, err
	}
	return c.Backend.Grant(ctx, ttl)
}

func (c *cutOff) KeepAlive(ctx context.Context, l coord.Lease) error {
	if err := c.err(); err != nil {
		return err
	}
	return c.Backend.KeepAlive(ctx, l)
}

func (c *cutOff) Revoke(ctx context.Context, l coord.Lease) error {
	if err := c.err(); err != nil {
		return err
	}
	return c.Backend.Revoke(ctx, l)
}

func (c *cutOff) Commit(ctx context.Context, all ...coord.Transaction) ([]bool, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	return c.Backend.Commit(ctx, all...)
}

func (c *cutOff) Get(ctx context.Context, key string) (coord.Entry, error) {
	if err := c.err(); err != nil {
		return coord.Entry{}, err
	}
	return c.Backend.Get(ctx, key)
}

func (c *cutOff) Range(ctx context.Context, prefix string) ([]coord.Entry, coord.Revision, error) {
	if err := c.err(); err != nil {
		return nil, 0, err
	}
	return c.Backend.Range(ctx, prefix)
}

func (c *cutOff) Watch(ctx context.Context, prefix string, after coord.Revision) iter.Seq2[[]coord.Event, error] {
	return func(yield func([]coord.Event, error) bool) {
		for events, err := range c.Backend.Watch(ctx, prefix, after) {
			if c.isCut.Load() {
				err = errCut
			}
			if !yield(events, err) || err != nil {
				return
			}
		}
	}
}

// member is an engine of a fleet, as a program runs it.
type member struct {
	*testing.T
	engine   *engine.Engine
	co       *coord.Coordinator
	fleet    *fleet.Fleet
	backend  *cutOff
	stop     func() // leaves the fleet, and waits for that
	failures atomic.Pointer[[]string]
}

func start(t *testing.T, name string, b coord.Backend, targets fleet.Targets) *member {
	t.Helper()
	m := &member{T: t, engine: engine.New(engine.Config{}), backend: &cutOff{Backend: b}}
	m.failures.Store(new([]string))
	var err error
	if m.co, err = coord.New(coord.Config{Name: name, Backend: m.backend}); err != nil {
		t.Fatal(err)
	}
	restarts, err := restart.New(restart.Config{Engine: m.engine, MayAct: m.co.MayAct})
	if err != nil {
		t.Fatal(err)
	}
	if m.fleet, err = fleet.New(fleet.Config{Coordinator: m.co, Engine: m.engine, Restarts: restarts}); err != nil {
		t.Fatal(err)
	}
	if err := m.fleet.Apply(targets); err != nil {
		t.Fatal(err)
	}
	runs := []func(context.Context){
		m.record, m.fleet.Run, m.co.Run, // ends in this order
		func(ctx context.Context) { _ = restarts.Run(ctx) },
		func(ctx context.Context) { _ = m.engine.Run(ctx) },
	}
	var ends []func()
	for _, run := range runs {
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { run(ctx) })
		ends = append(ends, func() { cancel(); running.Wait() })
	}
	m.stop = func() {
		for _, end := range ends {
			end()
		}
	}
	t.Cleanup(m.stop)
	return m
}

// record notes the probes that are published as not passing.
func (m *member) record(ctx context.Context) {
	sub := m.engine.Subscribe()
	defer sub.Close()
	for {
		s, err := sub.Next(ctx)
		if err != nil {
			return
		}
		if !s.Removed && s.Verdict != probe.Passing {
			all := append(*m.failures.Load(), fmt.Sprintf("%v %v of %s", s.ID, s.Verdict, s.Instance))
			m.failures.Store(&all)
		}
	}
}

// forget forgets the failures until now.
func (m *member) forget() { m.failures.Store(new([]string)) }

// kill ends the engine without a word to the others.
func (m *member) kill() {
	m.backend.isCut.Store(true)
	m.stop()
}

// probes counts the probes of an engine.
func (m *member) probes() (n int) {
	for range m.engine.Memories() {
		n++
	}
	return n
}

const many = 80 // targets, with 120 probes

func TestAnotherEngineTakesOverWithoutAChangeOfVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coord.NewLocal()
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
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coord.NewLocal()
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
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coord.NewLocal()
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
	synctest.Test(t, func(t *testing.T) {
		w, b := newWorld(), coord.NewLocal()
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
	})
}
