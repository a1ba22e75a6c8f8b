package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
)

// addSurvivors adds the processes that have outlived the previous engine to what it has
// remembered, which may be older than they are.
func (d *daemon) addSurvivors(restored restart.Restored, units map[string]restart.Unit) {
	for target, u := range units {
		s, survived := d.survivors.Of(target)
		driver, isProcess := u.Driver.(*process.Driver)
		if !survived || !isProcess {
			continue
		}
		if s.Err != nil {
			d.log.Warn("description of a process not read, retrying", "target", target, "error", s.Err)
		}
		m := restored.Targets[target]
		m.Exited = false // another policy must not keep the driver from ending it
		if driver.Resume(s.ID) {
			if m.Instance != s.ID {
				m.Started++
			}
			m.Instance, m.Since, m.Revision = s.ID, s.Started, u.RevisionID()
		}
		restored.Targets[target] = m
	}
}

// endPause is the time until the second try to end a process that has outlived its target.
// It doubles after each try, up to maxEndPause.
const (
	endPause    = 2 * time.Second
	maxEndPause = time.Minute
)

// endSurvivors ends the processes of targets that are no longer processes. It returns
// when they have ended, or ctx is done.
func (d *daemon) endSurvivors(ctx context.Context) {
	var ending sync.WaitGroup
	for _, s := range d.survivors {
		if s.Err != nil || !d.isProcess(s.Target) {
			ending.Go(func() { d.endSurvivor(ctx, s) })
		}
	}
	ending.Wait()
}

func (d *daemon) endSurvivor(ctx context.Context, s process.Survivor) {
	for pause := endPause; ; pause = min(2*pause, maxEndPause) {
		err := s.End(ctx, d.processes.Path(), d.log, d.isProcess)
		if err == nil || ctx.Err() != nil {
			return
		}
		message := "process of a removed target not ended, retrying"
		if s.Target == "" {
			message = "description of a process not read, retrying"
		}
		d.log.Warn(message, "target", s.Target, "error", err, "retry_in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// isProcess reports whether the engine runs a target as a process.
func (d *daemon) isProcess(target string) bool {
	_, ok := d.restarts.Driver(target).(*process.Driver)
	return ok
}
