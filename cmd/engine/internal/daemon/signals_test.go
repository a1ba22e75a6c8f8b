package daemon

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/restart"
)

// killable is a driver whose instance runs until it is killed.
type killable struct{}

func (killable) Run(ctx context.Context, began func(restart.Begun), _ <-chan time.Duration) restart.Exit {
	began(restart.Begun{ID: "1"})
	<-ctx.Done()
	return restart.Exit{Code: 137}
}

// TestAProgramThatGoesOnAfterItsEngineIsNotEnded sends a second signal, which would end this test if the engine did not stop in
// time.
func TestAProgramThatGoesOnAfterItsEngineIsNotEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := idle(t)
		d.signals = &signals{stop: make(chan os.Signal, 2)}
		if err := d.restarts.Apply(map[string]restart.Unit{"web": {Driver: killable{}}}); err != nil {
			t.Fatal(err)
		}
		go func() {
			synctest.Wait() // the instance runs
			d.signals.stop <- syscall.SIGTERM
			d.signals.stop <- syscall.SIGTERM
		}()
		if err := d.run(t.Context()); err == nil {
			t.Error("the second signal has not killed the engine")
		}
		time.Sleep(2 * killTimeout)
	})
}

func TestShutdownDiscardsAReloadUnderWay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{parts: parts{targets: &targets{}, finder: discover.NewFinder(discover.FinderConfig{})}, flags: &flags{}, paths: []string{dir}, log: slog.New(slog.DiscardHandler), queue: &cli.LogQueue{}}
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
