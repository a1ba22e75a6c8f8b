package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/command"
	"github.com/sonde-probe/sonde/restart/process"
)

// units returns how each target is started and restarted. It starts nothing. For a plan it does
// not make the directory of processes either.
func (d *daemon) units(c *config.Config, plan bool) (map[string]restart.Unit, error) {
	units := make(map[string]restart.Unit, len(c.Targets))
	for name, t := range c.Targets {
		u, err := d.unit(name, t, plan)
		if err != nil {
			return nil, fmt.Errorf("target %q: %w", name, err)
		}
		units[name] = u
	}
	return units, nil
}

func (d *daemon) unit(name string, t config.Target, plan bool) (restart.Unit, error) {
	unit, _ := t.Settings.(restart.Unit)
	unit.StartAfter = t.StartAfter
	driver, err := d.driver(name, t, plan)
	if err != nil || driver == nil {
		return unit, err
	}
	unit.Driver = driver
	unit.Revision, err = driverRevision(t)
	return unit, err
}

// runsElsewhere returns an error if the process of a target runs that an engine with another
// state file has left running. In another directory that engine may have a target of the same
// name: there the command counts, too.
func (d *daemon) runsElsewhere(c process.Config) error {
	for _, s := range d.abandonedStates {
		if err := s.Check(c.Target); err != nil {
			return err
		}
	}
	for _, a := range d.abandoned {
		if a.Runs(c) {
			return fmt.Errorf("the target's process runs already, and belongs to the state file %s", handlers.StateOf(a))
		}
	}
	return nil
}

// findAbandoned returns processes of engines whose state files are in other directories, if no such
// engine runs.
func (d *daemon) findAbandoned() []process.Abandoned {
	return slices.DeleteFunc(process.FindAbandoned(), func(a process.Abandoned) bool {
		return slices.ContainsFunc(d.abandonedStates, func(s handlers.AbandonedState) bool { return s.IsIn(a.Path) })
	})
}

// abandonedDelay is how long other engines that were started at the same time may take to load their
// configurations until their processes count as those of no engine.
const abandonedDelay = 15 * time.Second

// warnOfAbandoned warns of such processes, unless ctx is done before.
func (d *daemon) warnOfAbandoned(ctx context.Context) {
	if len(d.abandoned) == 0 {
		return
	}
	select {
	case <-time.After(abandonedDelay):
	case <-ctx.Done():
		return
	}
	for _, a := range d.findAbandoned() {
		d.log.Warn("processes with adopt run without an engine: start the engine with their state file, or end them",
			"targets", cli.SomeNames(a.Targets), "state", handlers.StateOf(a), "directory", a.Path)
	}
}

// operate carries out an operation for an operator. It returns when the state file has it, so that an
// engine that is killed afterwards does not forget it.
func (d *daemon) operate(ctx context.Context, target string, o api.Operation, by string) (changed, saved bool, err error) {
	switch o {
	case api.OperationStop:
		changed, err = d.restarts.Stop(target, by)
	case api.OperationStart:
		changed, err = d.restarts.Start(target, by)
	default:
		changed, err = d.restarts.Restart(target, by)
	}
	switch {
	case errors.Is(err, restart.ErrNoTarget):
		return false, false, api.ErrNoTarget
	case err != nil:
		return false, false, err
	}
	return changed, d.saved(ctx), nil
}

// processOf returns what the API shows of the processes of a target.
func (d *daemon) processOf(target string) (p api.Process, isProcess bool) {
	p.DroppedLines, isProcess = d.outputs.Dropped(target)
	if err := d.outputs.LogError(target); err != nil {
		p.LogError = probe.CleanText(d.queue.Secrets.Text(err.Error()), probe.MaxDetail)
	}
	if driver, ok := d.restarts.Driver(target).(*process.Driver); ok {
		p.Nice, p.Rlimits = driver.Attributes()
	}
	return p, isProcess
}

// driver returns what starts and ends the instances of a target, or nil for a target
// that the engine only probes.
func (d *daemon) driver(name string, t config.Target, plan bool) (restart.Driver, error) {
	switch c := t.Driver.(type) {
	case process.Config:
		if c.Adopt && !plan {
			if err := d.makeProcessDir(); err != nil {
				return nil, err
			}
		}
		c.Target, c.Logger, c.Outputs, c.AdoptDir = name, d.log, &d.outputs, d.processes.Path()
		c.Sensitive = d.addSecrets
		if plan {
			c.Outputs = nil
			c.AdoptDir = cmp.Or(c.AdoptDir, handlers.ProcessDir(d.settings.State))
		}
		c.Survivor, _ = d.survivors.Of(name)
		c.Elsewhere = func() error { return d.runsElsewhere(c) }
		return process.New(c)
	case command.Config:
		c.Target, c.Log = name, d.log
		return command.New(c)
	}
	return nil, nil
}
