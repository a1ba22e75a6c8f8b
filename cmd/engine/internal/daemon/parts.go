package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/agent"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// newAgent returns the parts that a configuration changes while the engine runs, in the order in which their changes are
// committed: gateways and notifiers follow groups, and groups follow targets.
func (d *daemon) newAgent() *agent.Agent {
	d.probed = &targetsPart{daemon: d}
	return agent.New(append([]agent.Part{d.probed}, d.followers()...)...)
}

// followers returns the parts that follow the targets.
func (d *daemon) followers() []agent.Part {
	return []agent.Part{
		&part{"maintenance", d.planMaintenances, d.pauses.Run},
		groupsPart{d},
		&part{"gateways", func(next *config.Config) (func(), error) {
			hasGroup := func(name string) bool { _, ok := next.Groups[name]; return ok }
			return d.gateways.Plan(handlers.GatewaySpecs(next.Gateways), hasGroup)
		}, d.gateways.Run},
		&part{"notifiers", func(next *config.Config) (func(), error) {
			return d.notifiers.Plan(handlers.NotifySpecs(next.Notifiers))
		}, d.notifiers.Run},
		&part{"probe modules", func(next *config.Config) (func(), error) {
			return d.probes.Plan(handlers.ProbeModules(next.ProbeModules))
		}, nothingToRun},
	}
}

// checkFollowers returns the error for which one of the parts that follow the targets cannot use a configuration.
func (d *daemon) checkFollowers(next *config.Config) error {
	p, err := agent.New(d.followers()...).Plan(next)
	if err == nil {
		p.Discard()
	}
	return err
}

// part is a part whose Plan has nothing to give back.
type part struct {
	name string
	plan func(next *config.Config) (commit func(), err error)
	run  func(context.Context) error
}

// nothingToRun is the run of a part that only answers requests.
func nothingToRun(context.Context) error { return nil }

// Name implements agent.Part.
func (p *part) Name() string { return p.name }

// Run implements agent.Part.
func (p *part) Run(ctx context.Context) error { return p.run(ctx) }

// Plan implements agent.Part.
func (p *part) Plan(next *config.Config) (agent.Change, error) {
	commit, err := p.plan(next)
	if err != nil {
		return nil, err
	}
	return change(commit), nil
}

// change is a change that has reserved nothing.
type change func()

// Commit implements agent.Change.
func (c change) Commit() { c() }

// Discard implements agent.Change.
func (change) Discard() {}

// groupsPart are the groups. Their followers get targets and groups in one change.
type groupsPart struct{ *daemon }

// Name implements agent.Part.
func (groupsPart) Name() string { return "groups" }

// Run implements agent.Part.
func (p groupsPart) Run(ctx context.Context) error { return p.groups.Run(ctx) }

// Plan implements agent.Part.
func (p groupsPart) Plan(next *config.Config) (agent.Change, error) {
	commit, err := p.groups.Plan(groupRules(next))
	if err != nil {
		return nil, err
	}
	return &groupsChange{hold: p.groups.Hold, commit: commit}, nil
}

// groupsChange is a change of the groups.
type groupsChange struct {
	hold    func() (release func())
	commit  func()
	release func()
}

// Hold implements agent.Holder.
func (c *groupsChange) Hold() { c.release = c.hold() }

// Commit implements agent.Change.
func (c *groupsChange) Commit() {
	c.commit()
	c.release()
}

// Discard implements agent.Change.
func (*groupsChange) Discard() {}

// planMaintenances plans the maintenance blocks.
func (d *daemon) planMaintenances(next *config.Config) (commit func(), err error) {
	all, err := maintenances(next)
	if err != nil {
		return nil, err
	}
	return func() { d.pauses.Maintain(all, d.upcoming(next)) }, nil
}

// upcoming returns the labels of the targets that the engine gets later, at any time: from other engines, or when an instance
// of a target without probes is reported; none if there are no maintenances, which are all that needs them.
func (d *daemon) upcoming(next *config.Config) map[string]map[string]string {
	if len(next.Maintenances) == 0 {
		return nil
	}
	next = d.pods.Add(next)
	probed := make(map[string]bool, len(next.Set))
	for id := range next.Set {
		probed[id.Target] = true
	}
	labels := map[string]map[string]string{}
	for target, t := range next.Targets {
		if !probed[target] || d.cluster.isShared(target) {
			labels[target] = t.Labels
		}
	}
	return labels
}

// targetsPart are the probes and units of targets: of the engine, of the controller of restarts, and of the fleet.
type targetsPart struct {
	daemon *daemon
	change *targetsChange // that was planned last
}

// Name implements agent.Part.
func (*targetsPart) Name() string { return "targets" }

// Run implements agent.Part. It runs the engine: instances end before, see runTargets.
func (p *targetsPart) Run(ctx context.Context) error {
	p.daemon.running.Store(true)
	defer p.daemon.running.Store(false)
	return p.daemon.engine.Run(ctx)
}

// targetsChange is a change of targets.
type targetsChange struct {
	daemon    *daemon
	next      *desired
	isFirst   bool
	planned   *engine.Planned // of the engine's own probes
	shared    func()          // commits the shared targets; nil without a cluster
	changes   engine.Changes  // of all probes
	effect    restart.Effect
	instances api.InstanceChanges
}

// Plan implements agent.Part. The lock of the engine's probes is held until the change is committed or discarded. The first
// Plan restores the state of the previous engine: after an error the program ends.
func (p *targetsPart) Plan(c *config.Config) (agent.Change, error) {
	d := p.daemon
	next, err := d.desired(c, false)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.restarts.CheckApply(next.units), checkLabels(next)); err != nil {
		return nil, err
	}
	t := &targetsChange{daemon: d, next: next, isFirst: d.lastReload.Load() == nil}
	change := next.change()
	if t.isFirst {
		change.Memories, change.Penalties = d.resume(c, next)
	}
	t.effect = d.effectOfApply(next)
	t.instances = instanceChanges(d.restarts, t.effect, next.units)
	if d.cluster != nil {
		if t.shared, err = d.cluster.fleet.Plan(next.shared); err != nil {
			return nil, err
		}
	}
	var ofShared engine.Preview
	if err := d.cluster.addPreview(&ofShared, next); err != nil {
		return nil, err
	}
	if t.planned, err = d.engine.Plan(change); err != nil {
		return nil, err
	}
	t.changes = t.planned.Changes()
	addCounts(&t.changes, ofShared.Changes)
	p.change = t
	return t, nil
}

// change returns the change of the engine's own probes.
func (n *desired) change() engine.Change {
	return engine.Change{Set: n.set, All: true, Dependencies: dependencies(n.config), Dampings: dampings(n.config)}
}

// checkLabels returns errors about the labels of targets, which the engine needs for targets without probes.
func checkLabels(n *desired) error {
	wrong := map[string]error{}
	for name := range n.units {
		if err := probe.CheckLabels(n.config.Targets[name].Labels); err != nil {
			wrong[name] = fmt.Errorf("target %q: %w", name, err)
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(wrong)) {
		errs = append(errs, wrong[name])
	}
	return errors.Join(errs...)
}

// Commit implements agent.Change.
func (t *targetsChange) Commit() {
	d, next := t.daemon, t.next
	t.planned.Commit()
	d.pauses.Keep(next.has)
	d.beats.Apply(next.set)
	if err := d.restarts.Apply(next.units); err != nil {
		d.log.Error("the units of targets are not applied, although they were checked: this is a bug", "error", err)
	}
	if t.shared != nil {
		d.cluster.shared.Store(&next.shared)
		d.cluster.own.Store(&next.units)
		t.shared()
	}
	for name := range next.units {
		_ = d.engine.Admin().Label(name, next.config.Targets[name].Labels) // checked by checkLabels
	}
	if t.isFirst {
		d.resumed()
	}
}

// Discard implements agent.Change.
func (t *targetsChange) Discard() { t.planned.Discard() }
