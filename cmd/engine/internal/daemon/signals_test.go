package daemon

import (
	"context"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
)

func TestShutdownDiscardsAReloadUnderWay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{flags: &flags{}, paths: []string{dir}, log: slog.New(slog.DiscardHandler)}
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
