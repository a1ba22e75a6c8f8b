package daemon

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/watchdog"
)

// logRestart logs it if the watchdog has started this engine.
func (d *daemon) logRestart() {
	if n := d.previous.Restarts; n > 0 {
		d.log.Error("the engine hung, its watchdog has started it again", "restarts", n)
		if err := d.previous.Unread; err != nil {
			d.log.Warn("processes of the engine that hung stay as zombies when they end, until this one ends", "error", err)
		}
	}
}

// startWatchdog starts the watchdog, if it is configured and exists on this system, and beats
// for it and for the service manager, if that watches the engine too. The caller calls stop when
// the engine has ended: it waits for the goroutine that beats, and from then on the watchdog ends
// the program if that takes longer than the limit.
func (d *daemon) startWatchdog() (stop func()) {
	limit, isOurs := watchdog.DefaultLimit, false
	if d.settings.Watchdog != nil {
		limit = *d.settings.Watchdog
	}
	if limit > 0 {
		if err := watchdog.Start(limit); err == nil {
			isOurs = true
		} else if d.settings.Watchdog != nil || !errors.Is(err, watchdog.ErrUnsupported) {
			d.log.Warn("no watchdog: an engine that hangs is not started again", "error", err)
		}
	}
	if !isOurs && !d.manager.watches {
		return func() {}
	}
	beat := func() {
		if watchdog.Beat(); d.manager.watches {
			d.manager.notify(isAlive)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		d.beat(ctx, cmp.Or(limit, watchdog.DefaultLimit), beat)
	}()
	return func() {
		watchdog.ExitOnly()
		cancel()
		<-stopped
	}
}

// beat calls a function every BeatInterval, unless the engine's loop is late, until ctx is
// done. It logs all stacks when the loop is late for half of the limit.
func (d *daemon) beat(ctx context.Context, limit time.Duration, beat func()) {
	ticks := time.NewTicker(watchdog.BeatInterval)
	defer ticks.Stop()
	logged := false
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		now := time.Now()
		delay := d.engine.LoopDelay()
		if delay <= now.Sub(last) { // the loop has run since, or nothing was due
			beat()
			logged = false
		} else if delay > limit/2 && !logged {
			d.log.Error("the engine hangs, the stacks of its goroutines follow", "loop_delay", delay)
			writeStacks(d.queue)
			logged = true
		}
		last = now
	}
}
