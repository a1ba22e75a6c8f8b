package daemon

import (
	"encoding/json"
	"fmt"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/adapter/restart/command"
	"github.com/sonde-probe/sonde/adapter/restart/process"
	"github.com/sonde-probe/sonde/config"
)

// units returns how each target is started and restarted. It starts nothing.
func (d *daemon) units(c *config.Config) (map[string]restart.Unit, error) {
	units := make(map[string]restart.Unit, len(c.Targets))
	for name, t := range c.Targets {
		u, err := d.unit(name, t)
		if err != nil {
			return nil, fmt.Errorf("target %q: %w", name, err)
		}
		units[name] = u
	}
	return units, nil
}

func (d *daemon) unit(name string, t config.Target) (restart.Unit, error) {
	unit, _ := t.Settings.(restart.Unit)
	driver, err := d.driver(name, t)
	if err != nil || driver == nil {
		return unit, err
	}
	revision, err := json.Marshal([]any{fmt.Sprintf("%T", t.Driver), t.Driver})
	unit.Driver, unit.Revision = driver, string(revision)
	return unit, err
}

// runsElsewhere returns an error if the process of a target runs that an engine with another
// state file has left running.
func (d *daemon) runsElsewhere(target string) error {
	for _, a := range d.abandoned {
		if err := a.Check(target); err != nil {
			return err
		}
	}
	return nil
}

// driver returns what starts and ends the instances of a target, or nil for a target
// that the engine only probes.
func (d *daemon) driver(name string, t config.Target) (restart.Driver, error) {
	switch c := t.Driver.(type) {
	case process.Config:
		if c.Adopt {
			if err := d.makeProcessDir(); err != nil {
				return nil, err
			}
		}
		c.Target, c.Log, c.AdoptDir = name, d.log, d.processes.Path()
		c.Survivor, _ = d.survivors.Of(name)
		c.Elsewhere = func() error { return d.runsElsewhere(name) }
		return process.New(c)
	case command.Config:
		c.Target, c.Log = name, d.log
		return command.New(c)
	}
	return nil, nil
}
