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

// applied is the result of applying a configuration: the changes that it made.
type applied struct {
	engine.Changes
	instances api.InstanceChanges
	blocks    []api.BlockChange
}

// apply puts a configuration, including the pods, into use. It applies all of it or nothing: it fails if a part cannot use the
// configuration, or if check rejects the effect on the current targets. check is called last, right before the commit.
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

// guardHint is the remedy shown with a guardError.
const guardHint = `if this is intended, run sonde reload --force, or set reload_guard = "100%" in the engine block and reload again`

// guardError reports that the reload guard refused a configuration.
type guardError struct {
	effect restart.Effect
	guard  probe.Share
}

// Error implements error.
func (e *guardError) Error() string {
	return fmt.Sprintf("the configuration would %v, more than reload_guard allows (%v)", e.effect, e.guard)
}

// named returns a short list of targets that the configuration would have removed or restarted.
func (e *guardError) named(targets []string) string {
	slices.Sort(targets)
	return cli.SomeNames(targets)
}

// reloadGuard returns the check of a reload. The check returns a *guardError if the configuration would remove or restart more
// targets than its own reload_guard allows.
func reloadGuard(c *config.Config) func(restart.Effect) error {
	return func(e restart.Effect) error {
		if !e.Exceeds(c.Engine.ReloadGuard) {
			return nil
		}
		return &guardError{e, c.Engine.ReloadGuard}
	}
}

// anyEffect is a check that allows removing and restarting all targets. It is used for pods whose manifests were deleted, as in
// the kubelet.
func anyEffect(restart.Effect) error { return nil }

// brakedBy wraps check. If check passes, the controller is notified of the reload, so that it can delay restarts that a wrong
// configuration would cause: see restart.Controller.Reloading.
func brakedBy(restarts *restart.Controller, t *targets, reload string, isForced bool, check func(restart.Effect) error) func(restart.Effect) error {
	return func(e restart.Effect) error {
		err := check(e)
		if err == nil {
			restarts.Reloading(restart.Reload{Name: reload, Changes: t.change.preview(), Forced: isForced})
		}
		return err
	}
}
