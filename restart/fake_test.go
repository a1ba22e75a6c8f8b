package restart_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// fakeDriver is a driver whose instances behave as specified by a test.
type fakeDriver struct {
	name   string
	behave func(n int) behavior // of the n-th instance, from 0
	zero   time.Time            // start of the test

	callsMu sync.Mutex // guards the fields below
	started []time.Duration
	ends    []time.Duration // grace periods
}

// behavior is the behavior of one instance.
type behavior struct {
	err        error         // it fails to start
	exitsAfter time.Duration // 0: it never exits
	code       int           // exit status
	endsAfter  time.Duration // after a request to terminate
	ignoresEnd bool
}

func newDriver(name string, behave func(n int) behavior) *fakeDriver {
	return &fakeDriver{name: name, behave: behave, zero: time.Now()}
}

// healthy runs until it is asked to terminate.
func healthy(int) behavior { return behavior{} }

func (d *fakeDriver) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	d.callsMu.Lock()
	n := len(d.started)
	d.started = append(d.started, time.Since(d.zero))
	d.callsMu.Unlock()
	b := d.behave(n)
	if b.err != nil {
		return restart.Exit{Code: -1, Err: b.err}
	}
	began(restart.Begun{ID: fmt.Sprintf("%s-%d", d.name, n)})
	return d.wait(ctx, b, end)
}

func (d *fakeDriver) wait(ctx context.Context, b behavior, end <-chan time.Duration) restart.Exit {
	var exited, ended <-chan time.Time
	if b.exitsAfter > 0 {
		exited = time.After(b.exitsAfter)
	}
	for {
		select {
		case grace := <-end:
			d.callsMu.Lock()
			d.ends = append(d.ends, grace)
			d.callsMu.Unlock()
			if !b.ignoresEnd {
				ended = time.After(min(b.endsAfter, grace))
			}
		case <-ended:
			return restart.Exit{Code: 143, Signal: "SIGTERM", Output: "bye"}
		case <-exited:
			return restart.Exit{Code: b.code, Output: "oops"}
		case <-ctx.Done():
			return restart.Exit{Code: 137}
		}
	}
}

// starts returns the start times of instances, since the start of the test.
func (d *fakeDriver) starts() []time.Duration {
	d.callsMu.Lock()
	defer d.callsMu.Unlock()
	return slices.Clone(d.started)
}

// graces returns the grace periods of requests to terminate.
func (d *fakeDriver) graces() []time.Duration {
	d.callsMu.Lock()
	defer d.callsMu.Unlock()
	return slices.Clone(d.ends)
}

// external is a fakeDriver whose instances run outside the engine.
type external struct{ *fakeDriver }

func (external) SetFailed(func(error)) {}

// fakeHandler succeeds, or fails if a test requests that.
type fakeHandler struct {
	failingMu sync.Mutex
	failing   bool
	result    probe.Result // result while it fails; the zero Result means no response
}

func (h *fakeHandler) setFailing(failing bool) {
	h.failingMu.Lock()
	defer h.failingMu.Unlock()
	h.failing = failing
}

func (h *fakeHandler) Probe(context.Context, probe.Target) probe.Result {
	h.failingMu.Lock()
	defer h.failingMu.Unlock()
	switch {
	case h.failing && h.result.Outcome == probe.Failure:
		return h.result
	case h.failing:
		return probe.Fail("test.failing", "it fails")
	}
	return probe.Succeed("")
}

// harness is a running engine with a controller.
type harness struct {
	*testing.T
	engine  *engine.Engine
	control *restart.Controller
	groups  *group.Groups // the floor; without groups until a test applies some
	stop    context.CancelFunc
	ended   chan error
	log     *testsync.Buffer

	isOthers atomic.Bool // another engine owns the targets
}

// inBubble runs a test in a synctest bubble, and then stops engine and controller. The bubble fails the test if a
// goroutine is left.
func inBubble(t *testing.T, budget restart.Budget, test func(h *harness)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, budget)
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

func newHarness(t *testing.T, budget restart.Budget) *harness {
	h := &harness{T: t, engine: engine.New(engine.Config{}), ended: make(chan error, 1), log: new(testsync.Buffer)}
	h.groups = group.New(group.Config{Engine: h.engine})
	var err error
	h.control, err = restart.New(restart.Config{
		Engine: h.engine, Budget: budget, Logger: slog.New(slog.NewTextHandler(h.log, nil)),
		MayAct: func(string) bool { return !h.isOthers.Load() }, Disruptions: h.groups,
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// apply applies units, and waits until the controller has acted on them.
func (h *harness) apply(units map[string]restart.Unit) {
	h.Helper()
	if err := h.control.Apply(units); err != nil {
		h.Fatal(err)
	}
	synctest.Wait()
}

// probes gives each target a liveness probe, with a period of one second and a
// failure threshold of 1.
func (h *harness) probes(handlers map[string]probe.Handler) {
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

// sleep advances the time of the bubble.
func (h *harness) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (h *harness) instance(target string) probe.Instance {
	h.Helper()
	status, _ := h.engine.Target(target)
	return status.Instance
}

// expect checks the instance that the engine reports.
func (h *harness) expect(target, id string, phase probe.Phase, reason probe.Reason) probe.Instance {
	h.Helper()
	in := h.instance(target)
	if in.ID != id || in.Phase != phase || in.Reason != reason {
		h.Fatalf("%s is %q %v %q (%s), want %q %v %q\n%s", target, in.ID, in.Phase, in.Reason, in.Detail, id, phase, reason, h.log)
	}
	return in
}

func (h *harness) expectTimes(what string, got []time.Duration, want ...time.Duration) {
	h.Helper()
	same := len(got) == len(want)
	for i := range want {
		same = same && got[i].Round(time.Second) == want[i]
	}
	if !same {
		h.Fatalf("%s %v, want %v\n%s", what, got, want, h.log)
	}
}

func (h *harness) expectText(text, part string) {
	h.Helper()
	if !strings.Contains(text, part) {
		h.Fatalf("%q does not contain %q", text, part)
	}
}

func only(d restart.Driver) map[string]restart.Unit {
	return map[string]restart.Unit{"web": {Driver: d}}
}
