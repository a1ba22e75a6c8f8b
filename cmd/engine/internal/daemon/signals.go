package daemon

import (
	"context"
	"syscall"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
)

// handleSignals handles signals, reloads and changes of the directory of pods until
// ctx is done: SIGHUP reloads the configuration, the first SIGTERM or SIGINT calls
// shutdown, and a second one kills the processes that still run. It returns an error
// with the exit code of a kill.
func (d *daemon) handleSignals(ctx context.Context, shutdown func()) error {
	ticks, stop := d.pods.Ticks()
	defer stop()
	loads := loader{daemon: d, done: make(chan loadResult)}
	defer loads.stop()
	var killed error
	for stopping := false; ; {
		select {
		case <-ctx.Done():
			return killed
		case <-ticks:
			if !stopping {
				d.refreshPods()
			}
		case r := <-loads.done:
			loads.loading = false
			if stopping {
				r.plugins.Release(d.plugins.Load())
				continue
			}
			d.reload(r)
			if loads.stale {
				loads.start(ctx)
			}
		case s := <-d.signals:
			switch {
			case s == syscall.SIGHUP && !stopping:
				loads.start(ctx)
			case s == syscall.SIGHUP: // too late
			case !stopping:
				d.log.Info("shutting down: waiting for processes to exit within their grace periods; a second signal kills them", "signal", s.String())
				stopping = true
				shutdown()
			default:
				d.log.Warn("second signal received, killing processes", "signal", s.String())
				killed = cli.ErrReported(128 + int(s.(syscall.Signal)))
				d.restarts.Kill()
			}
		}
	}
}
