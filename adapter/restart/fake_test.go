package restart_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/testsync"
	"github.com/sonde-probe/sonde/probe"
)

// actor is a driver whose lives do as they are told. It notes what happens.
type actor struct {
	name  string
	lives func(n int) script // n counts from 0

	mu     sync.Mutex
	n      int
	began  []time.Duration // since the bubble's start
	graces []time.Duration
	zero   time.Time
}

// script is one life of an actor.
type script struct {
	err   error         // it cannot begin
	lasts time.Duration // until it ends by itself; 0: it does not
	code  int           // exit status when it ends by itself
	dying time.Duration // from being asked to its end
	deaf  bool          // it does not end when it is asked
}

func newActor(name string, lives func(n int) script) *actor {
	return &actor{name: name, lives: lives, zero: time.Now()}
}

// healthy lives until it is asked to end.
func healthy(int) script { return script{} }

func (a *actor) Run(ctx context.Context, began func(string), end <-chan time.Duration) restart.Exit {
	a.mu.Lock()
	n := a.n
	a.n++
	a.began = append(a.began, time.Since(a.zero))
	a.mu.Unlock()
	s := a.lives(n)
	if s.err != nil {
		return restart.Exit{Code: -1, Err: s.err}
	}
	began(fmt.Sprintf("%s-%d", a.name, n))
	return a.live(ctx, s, end)
}

func (a *actor) live(ctx context.Context, s script, end <-chan time.Duration) restart.Exit {
	var own, dead <-chan time.Time
	if s.lasts > 0 {
		own = time.After(s.lasts)
	}
	for {
		select {
		case grace := <-end:
			a.mu.Lock()
			a.graces = append(a.graces, grace)
			a.mu.Unlock()
			if !s.deaf {
				dead = time.After(min(s.dying, grace))
			}
		case <-dead:
			return restart.Exit{Code: 143, LastWords: "bye"}
		case <-own:
			return restart.Exit{Code: s.code, LastWords: "oops"}
		case <-ctx.Done():
			return restart.Exit{Code: 137}
		}
	}
}

func (a *actor) starts() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]time.Duration(nil), a.began...)
}

func (a *actor) asked() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]time.Duration(nil), a.graces...)
}

// foreign is an actor whose lives something else runs.
type foreign struct{ *actor }

func (foreign) External() {}

// health is a handler that a test can turn.
type health struct {
	mu  sync.Mutex
	bad bool
}

func (h *health) turn(bad bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bad = bad
}

func (h *health) Probe(context.Context, probe.Target) probe.Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bad {
		return probe.Fail("test.bad", "it is bad")
	}
	return probe.Succeed("")
}

// house is an engine and a controller that run.
type house struct {
	*testing.T
	engine  *engine.Engine
	control *restart.Controller
	stop    context.CancelFunc
	ended   chan error
	log     *testsync.Buffer
}

// inHouse runs a test in a bubble, and afterwards ends everything in it. The
// bubble itself sees to it that no goroutine is left.
func inHouse(t *testing.T, budget restart.Budget, test func(h *house)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, budget)
		engineCtx, endEngine := context.WithCancel(t.Context())
		ctx, stop := context.WithCancel(t.Context())
		h.stop = stop
		var running sync.WaitGroup
		running.Go(func() { _ = h.engine.Run(engineCtx) })
		running.Go(func() { h.ended <- h.control.Run(ctx) })
		test(h)
		stop()
		h.control.Kill()
		endEngine()
		running.Wait()
	})
}

func newHouse(t *testing.T, budget restart.Budget) *house {
	h := &house{T: t, engine: engine.New(engine.Config{}), ended: make(chan error, 1), log: new(testsync.Buffer)}
	var err error
	h.control, err = restart.New(restart.Config{Engine: h.engine, Budget: budget, Logger: slog.New(slog.NewTextHandler(h.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// apply makes units the wanted ones, and waits until that has been seen to.
func (h *house) apply(units map[string]restart.Unit) {
	h.Helper()
	if err := h.control.Apply(units); err != nil {
		h.Fatal(err)
	}
	synctest.Wait()
}

// probes gives each target a liveness probe, each second, with one failure
// that decides.
func (h *house) probes(handlers map[string]probe.Handler) {
	h.Helper()
	set := probe.Set{}
	for target, handler := range handlers {
		set[liveness(target)] = probe.Probe{Rule: probe.Rule{Period: time.Second, FailureThreshold: 1}, Handler: handler, HandlerName: "test"}
	}
	if _, err := h.engine.Apply(set); err != nil {
		h.Fatal(err)
	}
}

func liveness(target string) probe.ID { return probe.ID{Target: target, Kind: probe.Liveness} }

// sleep lets time pass in the bubble.
func (h *house) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (h *house) instance(target string) probe.Instance {
	h.Helper()
	status, _ := h.engine.Target(target)
	return status.Instance
}

// expect compares the instance that the engine knows of.
func (h *house) expect(target, id string, phase probe.Phase, reason probe.Reason) probe.Instance {
	h.Helper()
	in := h.instance(target)
	if in.ID != id || in.Phase != phase || in.Reason != reason {
		h.Fatalf("%s is %q %v %q (%s), want %q %v %q\n%s", target, in.ID, in.Phase, in.Reason, in.Detail, id, phase, reason, h.log)
	}
	return in
}

func (h *house) expectTimes(what string, got []time.Duration, want ...time.Duration) {
	h.Helper()
	same := len(got) == len(want)
	for i := range want {
		same = same && got[i].Round(time.Second) == want[i]
	}
	if !same {
		h.Fatalf("%s %v, want %v\n%s", what, got, want, h.log)
	}
}

func (h *house) expectText(text, part string) {
	h.Helper()
	if !strings.Contains(text, part) {
		h.Fatalf("%q does not say %q", text, part)
	}
}

func only(d restart.Driver) map[string]restart.Unit {
	return map[string]restart.Unit{"web": {Driver: d}}
}
