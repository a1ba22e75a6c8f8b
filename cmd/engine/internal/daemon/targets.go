package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/sonde-probe/sonde/agent"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/manifests"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// targets is the part with the probes and units of targets, in the engine, the controller of restarts and the fleet.
type targets struct {
	engine    *engine.Engine
	restarts  *restart.Controller
	processes *processes
	sharing   sharing // with other engines
	pauses    *pause.Keeper
	beats     *beatprobe.Registry
	saved     *saved
	resume    string // config.Engine.Resume
	log       *slog.Logger

	pods      *manifests.Dir // as last read; nil for none
	isResumed bool           // the state of the previous engine was restored and a configuration is in use
	runs      atomic.Bool    // the engine's loop runs
	change    *targetsChange // the planned change; nil for none
}

// desired is the state that a configuration, including the pods, requires.
type desired struct {
	config *config.Config
	set    probe.Set               // the probes that only this engine runs
	units  map[string]restart.Unit // of the targets that are not shared
	shared fleet.Targets           // shared by the engines of the cluster; empty without a cluster
}

// has reports whether a target exists.
func (n *desired) has(target string) bool {
	_, isOwn := n.units[target]
	return isOwn || n.isShared(target)
}

// isShared reports whether the engines of a cluster share a target.
func (n *desired) isShared(target string) bool {
	_, shared := n.shared.Units[target]
	return shared
}

// change returns the change of the engine's own probes.
func (n *desired) change() engine.Change {
	return engine.Change{Set: n.set, All: true, Dependencies: dependencies(n.config), Dampings: dampings(n.config)}
}

// checkLabels returns errors about the labels of targets. The engine needs the labels even of targets without probes.
func (n *desired) checkLabels() error {
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

// desired returns the state that a configuration requires.
func (t *targets) desired(c *config.Config) (*desired, error) {
	all := t.pods.Add(c)
	units, err := t.processes.units(all)
	if err != nil {
		return nil, err
	}
	if err := restart.CheckUnits(units); err != nil {
		return nil, err
	}
	return t.sharing.divide(c, &desired{config: all, set: all.Set, units: units})
}

// part returns the targets as a part of the agent.
func (t *targets) part() agent.Part { return agent.Part{Name: "targets", Plan: t.plan, Run: t.run} }

// run runs the engine. Instances end before it does: see daemon.runTargets.
func (t *targets) run(ctx context.Context) error {
	t.runs.Store(true)
	defer t.runs.Store(false)
	return t.engine.Run(ctx)
}

// targetsChange is a planned change to the targets.
type targetsChange struct {
	targets   *targets
	next      *desired
	hadDir    bool            // a directory of processes existed before
	planned   *engine.Planned // of the engine's own probes
	shared    sharedChange    // with other engines
	changes   engine.Changes  // of all probes
	resumed   *restart.Reload // the changes of the first configuration that resumes state; nil for other configurations
	effect    restart.Effect
	instances map[string]string // see instanceChanges
}

// plan plans the targets. The lock of the engine's probes is held until the change is committed or discarded. The first plan
// also restores the state of the previous engine; if the plan fails, the program ends.
func (t *targets) plan(c *config.Config) (_ agent.Change, err error) {
	hadDir := t.processes.dir != nil
	defer func() {
		if err != nil {
			t.forget(hadDir)
		}
	}()
	next, err := t.desired(c)
	if err != nil {
		return agent.Change{}, err
	}
	if err := errors.Join(t.restarts.CheckApply(next.units), next.checkLabels()); err != nil {
		return agent.Change{}, err
	}
	planned := &targetsChange{targets: t, next: next, hadDir: hadDir}
	change := next.change()
	if !t.isResumed {
		change.Memories, change.Penalties = t.restore(c, next)
	}
	if planned.shared, err = t.sharing.plan(next); err != nil {
		return agent.Change{}, err
	}
	planned.effect = bothEffects(t.restarts.EffectOfApply(next.units), planned.shared.effect)
	planned.instances = instanceChanges(t.restarts, planned.effect, next.units)
	if planned.planned, err = t.engine.Plan(change); err != nil {
		return agent.Change{}, err
	}
	if len(t.saved.left.Memories) > 0 && t.resume != config.Forget {
		planned.resumed = &restart.Reload{Name: "the configuration of this start", Changes: planned.planned.Preview().Probes, Memories: t.saved.restarts}
	}
	planned.changes = planned.planned.Changes()
	addCounts(&planned.changes, planned.shared.probes.Changes)
	t.change = planned
	return agent.Change{Commit: planned.commit, Discard: planned.discard}, nil
}

// commit applies the change.
func (c *targetsChange) commit() {
	t, next := c.targets, c.next
	if c.resumed != nil {
		t.restarts.Reloading(*c.resumed)
	}
	c.planned.Commit()
	t.pauses.Keep(next.has)
	t.beats.Apply(next.set)
	if err := t.restarts.Apply(next.units); err != nil {
		t.log.Error("cannot apply the units of targets although they passed validation: this is a bug", "error", err)
	}
	c.shared.commit()
	t.processes.outputs.Keep(t.isConfigured)
	for name := range next.units {
		_ = t.engine.Admin().Label(name, next.config.Targets[name].Labels) // checked by checkLabels
	}
	t.restarts.Announce()
	t.change = nil
	if !t.isResumed {
		t.isResumed = true
		t.beats.ForgetRestored()
		t.saved.finish()
	}
}

// discard releases the resources of the plan and the lock of the engine's probes.
func (c *targetsChange) discard() {
	c.planned.Discard()
	c.targets.change = nil
	c.targets.forget(c.hadDir)
}

// preview returns the changes to all probes, sorted by ID.
func (c *targetsChange) preview() []engine.ProbeChange {
	all := slices.Concat(c.planned.Preview().Probes, c.shared.probes.Probes)
	slices.SortFunc(all, func(a, b engine.ProbeChange) int { return a.ID.Compare(b.ID) })
	return all
}

// forget releases the resources that desired created for a configuration that was not put into use.
func (t *targets) forget(hadDir bool) {
	if !hadDir {
		t.processes.removeDir()
	}
	t.processes.outputs.Keep(t.isConfigured)
}

// isConfigured reports whether a target has a driver now.
func (t *targets) isConfigured(target string) bool { return t.restarts.Driver(target) != nil }

// bothEffects combines the effects on the engine's own targets and on shared ones.
func bothEffects(own, shared restart.Effect) restart.Effect {
	own.Units += shared.Units
	own.Added = append(own.Added, shared.Added...)
	own.Removed = append(own.Removed, shared.Removed...)
	return own
}

// restore prepares the first configuration. It starts maintenances before the engine has the targets, and lets the controller
// resume the units of the previous engine. It returns the memories of unchanged probes, and the penalties to apply with the
// probes. No part runs yet that could observe an intermediate state.
func (t *targets) restore(c *config.Config, next *desired) (map[probe.ID]engine.Memory, map[string]verdict.Penalty) {
	if err := t.restarts.Apply(next.units); err != nil {
		return nil, nil // CheckApply has reported the error
	}
	if all, err := maintenances(c); err == nil && len(all) > 0 { // the maintenance part has reported the error
		t.pauses.Maintain(all, labelsOf(next.config, next.has))
	}
	if t.saved.store == nil {
		return nil, nil
	}
	state := t.saved.restore(t.resume, next.isShared)
	restored := t.saved.restarts
	t.processes.addSurvivors(restored, next.units)
	instances := t.restarts.Restore(restored)
	memories := make(map[probe.ID]engine.Memory, len(state.Memories))
	for id, m := range state.Memories {
		if _, ok := next.set[id]; !ok {
			continue
		}
		if instances[id.Target] != m.State.Instance {
			m = m.Forgotten()
		}
		if t.resume == config.Verify {
			m = m.Renewed(id.Kind)
		}
		if err := m.Check(probe.Rule{Kind: id.Kind}); err != nil {
			t.log.Warn("state of a probe discarded", "probe", id.String(), "error", err)
			continue
		}
		memories[id] = m
	}
	return memories, t.saved.penalties
}

// planMaintenances plans the maintenance blocks.
func (t *targets) planMaintenances(next *config.Config) (agent.Change, error) {
	all, err := maintenances(next)
	return agent.Change{Commit: func() { t.pauses.Maintain(all, t.upcoming(next)) }}, err
}

// upcoming returns the labels of the targets that the engine gets later: from other engines, or when an instance of a target
// without probes is reported. It returns nil if there are no maintenances, which alone need the labels.
func (t *targets) upcoming(next *config.Config) map[string]map[string]string {
	if len(next.Maintenances) == 0 {
		return nil
	}
	next = t.pods.Add(next)
	probed := make(map[string]bool, len(next.Set))
	for id := range next.Set {
		probed[id.Target] = true
	}
	return labelsOf(next, func(target string) bool { return !probed[target] || t.sharing.isShared(target) })
}

// dependencies returns by target the targets that it depends on.
func dependencies(c *config.Config) map[string][]string {
	all := map[string][]string{}
	for name, t := range c.Targets {
		if len(t.DependsOn) > 0 {
			all[name] = t.DependsOn
		}
	}
	return all
}

// dampings returns by target the damping of targets that flap.
func dampings(c *config.Config) map[string]probe.Damping {
	all := map[string]probe.Damping{}
	for name, t := range c.Targets {
		if t.Damping != (probe.Damping{}) {
			all[name] = t.Damping
		}
	}
	return all
}
