package main

import (
	"context"
	"syscall"
)

// obey does what signals and the directory of pods ask for until ctx is done:
// SIGHUP reads the configuration again, the first SIGTERM or SIGINT calls end,
// and a second one kills what has not ended. It returns an error with the exit
// code that a kill gives.
func (d *daemon) obey(ctx context.Context, end func()) error {
	look, stop := d.pods.looks()
	defer stop()
	reads := reading{daemon: d, done: make(chan reread)}
	defer reads.stop()
	var killed error
	for asked := false; ; {
		select {
		case <-ctx.Done():
			return killed
		case <-look:
			if !asked {
				d.lookAtPods()
			}
		case r := <-reads.done:
			if asked {
				r.plugins.leave(d.plugins.Load())
				continue
			}
			d.reload(r)
			reads.next(ctx)
		case s := <-d.signals:
			switch {
			case s == syscall.SIGHUP && !asked:
				reads.begin(ctx)
			case s == syscall.SIGHUP: // too late
			case !asked:
				d.log.Info("ending processes by their grace periods; a second signal kills them", "signal", s.String())
				asked = true
				end()
			default:
				d.log.Warn("killing processes", "signal", s.String())
				killed = told(128 + int(s.(syscall.Signal)))
				d.restarts.Kill()
			}
		}
	}
}
