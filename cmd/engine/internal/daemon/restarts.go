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
	driver, err := d.driver(name, t)
	if err != nil {
		return restart.Unit{}, err
	}
	var policy restart.Policy
	if err := policy.UnmarshalText([]byte(t.RestartPolicy)); err != nil {
		return restart.Unit{}, err
	}
	revision, err := json.Marshal([]any{t.Process, t.Restart})
	return restart.Unit{
		Driver:                 driver,
		Policy:                 policy,
		TerminationGracePeriod: t.TerminationGracePeriod,
		BackOff:                restart.BackOff(t.BackOff),
		Revision:               string(revision),
	}, err
}

// driver returns what starts and ends the instances of a target, or nil for a target
// that the engine only probes.
func (d *daemon) driver(name string, t config.Target) (restart.Driver, error) {
	switch {
	case t.Process != nil:
		p := t.Process
		return process.New(process.Config{
			Target: name, Command: p.Command, Env: p.Env, Dir: p.Dir, User: p.User, Log: d.log,
		})
	case t.Restart != nil:
		r := t.Restart
		return command.New(command.Config{
			Target: name, Command: r.Command, Timeout: r.Timeout, Env: r.Env, Dir: r.Dir, User: r.User, Log: d.log,
		})
	}
	return nil, nil
}

func budget(b *config.Budget) restart.Budget {
	if b == nil {
		return restart.Budget{}
	}
	return restart.Budget{Max: b.Max, Share: float64(b.Share), Per: b.Per}
}
