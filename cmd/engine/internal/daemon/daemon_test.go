package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
)

func TestAnEngineIsAliveUnlessItsLoopHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{parts: parts{engine: engine.New(engine.Config{}), targets: &targets{}}}
		if d.alive() == nil {
			t.Error("an engine that does not run is alive")
		}
		d.targets.runs.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.engine.Run(ctx) }()
		time.Sleep(time.Hour)
		if err := d.alive(); err != nil {
			t.Errorf("an engine without probes: %v", err)
		}
		handler := nonblocktest.Stuck{Release: make(chan struct{})}
		id := probe.ID{Target: "web", Kind: probe.Readiness}
		if _, err := d.engine.Apply(probe.Set{id: {Handler: handler}}); err != nil {
			t.Fatal(err)
		}
		d.engine.Report(probe.Instance{Target: "web", ID: "1", Phase: probe.Running, Since: time.Now()})
		time.Sleep(maxLoopDelay - time.Second)
		if err := d.alive(); err != nil {
			t.Errorf("a loop that was late for a moment: %v", err)
		}
		time.Sleep(10 * time.Second)
		if d.alive() == nil {
			t.Error("an engine whose loop hangs is alive")
		}
		close(handler.Release)
		synctest.Wait()
		if err := d.alive(); err != nil {
			t.Errorf("an engine whose loop is back: %v", err)
		}
		cancel()
		<-ended
	})
}

// /readyz reports the result of ready, and /healthz that of alive.
func TestADegradedEngineIsAliveAndNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{parts: parts{engine: engine.New(engine.Config{}), targets: &targets{}}}
		d.targets.runs.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.engine.Run(ctx) }()
		synctest.Wait()
		if err := d.ready(); err != nil {
			t.Errorf("a healthy engine: %v", err)
		}
		short := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			return probe.Broken(probe.ReasonResources, "too many open files")
		})
		id := probe.ID{Target: "web", Kind: probe.Readiness}
		set := probe.Set{id: {Handler: short, Target: probe.Target{Static: true}, Rule: probe.Rule{Period: time.Second}}}
		if _, err := d.engine.Apply(set); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := d.ready(); d.alive() != nil || err == nil || !strings.Contains(err.Error(), "the engine is degraded: health score") {
			t.Errorf("alive: %v, ready: %v", d.alive(), err)
		}
		cancel()
		<-ended
	})
}

// idle returns a daemon that does not run.
func idle(t *testing.T) *daemon {
	d := &daemon{parts: parts{beats: beatprobe.NewRegistry()}, flags: &flags{}, log: slog.New(slog.DiscardHandler), queue: cli.NewLogQueue(io.Discard)}
	t.Cleanup(func() { d.queue.Close(time.Minute) })
	if err := d.makeParts(&config.Config{}); err != nil {
		t.Fatal(err)
	}
	d.targets.isResumed = true // it has a configuration
	d.agent = d.newAgent()
	return d
}

func TestAnEngineHasARestartBudgetUnlessItIsAKubelet(t *testing.T) {
	own := restart.Budget{Max: 1, Per: time.Minute}
	for _, c := range []struct {
		configured restart.Budget
		as         probe.Compatibility
		want       restart.Budget
	}{
		{restart.Budget{}, probe.Mended, restart.DefaultBudget}, {own, probe.Mended, own},
		{restart.Budget{}, probe.Kubelet, restart.Budget{}}, {own, probe.Kubelet, own},
	} {
		if got := budgetOf(c.configured, c.as); got != c.want {
			t.Errorf("%+v as %v: %+v, want %+v", c.configured, c.as, got, c.want)
		}
	}
}

func TestARefusedUnitChangesNothing(t *testing.T) {
	d := idle(t)
	for want, targets := range map[string]map[string]config.Target{
		"restart_policy": {"web": {Settings: restart.Unit{Policy: restart.Never + 1}}},
		// Package config rejects this cycle earlier.
		"start_after has a cycle": {"web": {StartAfter: []string{"db"}}, "db": {StartAfter: []string{"web"}}},
	} {
		c := &config.Config{
			Set: probe.Set{{Target: "web", Kind: probe.Readiness}: {Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
				return probe.Succeed("")
			})}},
			Targets: targets,
		}
		if _, err := d.apply(c, anyEffect); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
		if _, there := d.engine.Target("web"); there || d.config != nil {
			t.Errorf("%s: the engine has the probes of a configuration that was refused", want)
		}
	}
}

func TestARejectedConfigurationLeavesNoCountersOfOutputs(t *testing.T) {
	d := idle(t)
	c := &config.Config{Targets: map[string]config.Target{"app": {Driver: process.Config{Command: []string{"true"}}}}}
	refused := errors.New("too many targets")
	if _, err := d.apply(c, func(restart.Effect) error { return refused }); !errors.Is(err, refused) {
		t.Fatalf("the error is %v", err)
	}
	if _, counted := d.processes.outputs.Dropped("app"); counted {
		t.Error("the lines of a process are counted that was never configured")
	}
}
