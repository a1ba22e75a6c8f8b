package daemon

import (
	"context"
	"io"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/restart"
)

// killable is a driver whose instance runs until it is killed.
type killable struct{}

func (killable) Run(ctx context.Context, began func(string), _ <-chan time.Duration) restart.Exit {
	began("1")
	<-ctx.Done()
	return restart.Exit{Code: 137}
}

// TestAProgramThatGoesOnAfterItsEngineIsNotEnded has a second signal, which would end this
// test if the engine did not stop in time.
func TestAProgramThatGoesOnAfterItsEngineIsNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{engine: engine.New(engine.Config{}), log: slog.New(slog.DiscardHandler), queue: cli.NewLogQueue(io.Discard)}
		defer d.queue.Close(flushTimeout)
		d.signals = &signals{stop: make(chan os.Signal, 2)}
		d.beats = beatprobe.NewRegistry()
		d.groups = group.New(group.Config{Engine: d.engine})
		d.pauses = pause.New(pause.Config{Engine: d.engine})
		d.gateways = gateway.New(gateway.Config{Groups: d.groups, Logger: d.log})
		d.notifiers = notify.New(notify.Config{Engine: d.engine, Groups: d.groups, Logger: d.log})
		var err error
		if d.restarts, err = restart.New(restart.Config{Engine: d.engine}); err != nil {
			t.Fatal(err)
		}
		d.agent = d.newAgent()
		if err := d.restarts.Apply(map[string]restart.Unit{"web": {Driver: killable{}}}); err != nil {
			t.Fatal(err)
		}
		d.signals.stop <- syscall.SIGTERM
		d.signals.stop <- syscall.SIGTERM
		if err := d.run(t.Context()); err == nil {
			t.Error("the second signal has not killed the engine")
		}
		time.Sleep(2 * killTimeout)
	})
}

func TestShutdownDiscardsAReloadUnderWay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{flags: &flags{}, paths: []string{dir}, log: slog.New(slog.DiscardHandler), queue: &cli.LogQueue{}}
		d.signals = &signals{reload: make(chan os.Signal), stop: make(chan os.Signal, 1)}
		d.plugins.Store(handlers.NewPlugins(t.Context(), handlers.WaitForNone, handlers.Silent))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		returned := make(chan error, 1)
		go func() { returned <- d.handleSignals(ctx, func() {}) }()
		d.signals.reload <- syscall.SIGHUP
		d.signals.stop <- syscall.SIGTERM
		synctest.Wait() // both signals are handled, and the configuration is loaded
		cancel()
		if err := <-returned; err != nil {
			t.Error(err)
		}
	})
}
