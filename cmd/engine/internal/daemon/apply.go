package daemon

import (
	"fmt"
	"slices"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// applied is what a configuration that was put into use has changed.
type applied struct {
	engine.Changes
	instances api.InstanceChanges
	blocks    []api.BlockChange
}

// apply puts a configuration into use, with the pods: all of it, or nothing, if a part cannot use it, or check has
// an error about what would happen to the targets in use. Check is called last, right before the commit.
func (d *daemon) apply(c *config.Config, check func(restart.Effect) error) (applied, error) {
	d.addSecrets(c.Secrets)
	p, err := d.agent.Plan(c)
	if err != nil {
		return applied{}, err
	}
	t := d.targets.change
	if err := check(t.effect); err != nil {
		p.Discard()
		return applied{}, err
	}
	p.Commit()
	if d.count = len(t.next.config.Targets); d.targets.pods != nil {
		d.config = c
	}
	done := applied{t.changes, countInstances(t.instances), blockChanges(d.blocks, c)}
	d.blocks = blocksOf(c)
	return done, nil
}

// guardHint is the cure of a guardError.
const guardHint = `if this is meant, run sonde reload --force, or set reload_guard = "100%" in the engine block and reload again`

// guardError is the error of a configuration that the reload guard refuses.
type guardError struct {
	effect restart.Effect
	guard  probe.Share
}

// Error implements error.
func (e *guardError) Error() string {
	return fmt.Sprintf("the configuration would %v, more than reload_guard allows (%v)", e.effect, e.guard)
}

// named names some of the targets that the configuration would have removed or restarted.
func (e *guardError) named(targets []string) string {
	slices.Sort(targets)
	return cli.SomeNames(targets)
}

// reloadGuard returns the check of a reload: its effect is a *guardError if a configuration
// would remove or restart more targets than it permits itself.
func reloadGuard(c *config.Config) func(restart.Effect) error {
	return func(e restart.Effect) error {
		if !e.Exceeds(c.Engine.ReloadGuard) {
			return nil
		}
		return &guardError{e, c.Engine.ReloadGuard}
	}
}

// anyEffect is the check of what may remove and restart all targets: pods whose manifests
// are gone, as for the kubelet.
func anyEffect(restart.Effect) error { return nil }

// brakedBy returns a check with which, once it has no error, restarts wait that would follow from a reload if its
// configuration is wrong: see restart.Controller.Reloading.
func brakedBy(restarts *restart.Controller, t *targets, reload string, isForced bool, check func(restart.Effect) error) func(restart.Effect) error {
	return func(e restart.Effect) error {
		err := check(e)
		if err == nil {
			restarts.Reloading(restart.Reload{Name: reload, Changes: t.change.preview(), Forced: isForced})
		}
		return err
	}
}
