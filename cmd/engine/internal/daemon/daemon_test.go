package daemon

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
)

func TestAnEngineIsAliveUnlessItsLoopHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{engine: engine.New(engine.Config{})}
		if d.alive() == nil {
			t.Error("an engine that does not run is alive")
		}
		d.running.Store(true)
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

// /readyz says what ready returns; /healthz, alive.
func TestADegradedEngineIsAliveAndNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{engine: engine.New(engine.Config{})}
		d.running.Store(true)
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

func TestARefusedUnitChangesNothing(t *testing.T) {
	d := &daemon{engine: engine.New(engine.Config{}), log: slog.New(slog.DiscardHandler)}
	var err error
	if d.restarts, err = restart.New(restart.Config{Engine: d.engine}); err != nil {
		t.Fatal(err)
	}
	c := &config.Config{
		Set: probe.Set{{Target: "web", Kind: probe.Readiness}: {Handler: probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			return probe.Succeed("")
		})}},
		Targets: map[string]config.Target{"web": {Settings: restart.Unit{Policy: restart.Never + 1}}},
	}
	if _, err := d.apply(c, anyEffect); err == nil || !strings.Contains(err.Error(), "restart_policy") {
		t.Errorf("the error is %v", err)
	}
	if _, there := d.engine.Target("web"); there || d.config != nil {
		t.Error("the engine has the probes of a configuration that was refused")
	}
}
