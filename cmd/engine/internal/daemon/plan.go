package daemon

import (
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/agent"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/container"
)

// planner previews a reload.
type planner struct {
	agent   *agent.Agent
	targets *targets       // of agent
	blocks  *config.Config // see blockChanges
	redact  func(text string) string
}

// planner returns a planner for the configuration in use.
func (d *daemon) planner() *planner {
	return &planner{d.agent, d.targets, d.blocks, d.queue.Secrets.Text}
}

// plan returns the effect that reload would have with a loaded configuration. It plans the configuration like reload, then
// discards the plan.
func (l *planner) plan(r loadResult) api.Plan {
	p := api.Plan{Problems: problems(r.diags), Partial: r.before == nil, Changes: []api.TargetChange{}}
	reject := func(err error) api.Plan {
		p.Error = &api.Error{Status: http.StatusUnprocessableEntity, Message: probe.CleanText(l.redact(err.Error()), probe.MaxDetail)}
		return p
	}
	if errs, _ := r.diags.Count(); errs > 0 {
		return reject(errorsOf(r.diags, errs))
	}
	made, err := l.agent.Plan(r.config)
	if err != nil {
		return reject(err)
	}
	change := l.targets.change
	probes := change.preview()
	made.Discard() // early, since the rest takes time with many targets
	p.Probes, p.Instances = api.Changes(change.changes), countInstances(change.instances)
	p.Blocks, p.Settings = append(blockChanges(l.blocks, r.config), moduleChanges(r.before, r.config)...), settingChanges(r.before, r.config)
	changes := planned{plan: &p, targets: map[string]*api.TargetChange{}, before: r.before, after: r.config}
	changes.addTargets(change.effect, change.instances, change.next.units)
	for _, one := range probes {
		changes.addProbe(one)
	}
	changes.finish(change.effect.Units)
	p.Changed = len(changes.targets)+len(p.Blocks)+len(p.Settings) > 0
	if err := reloadGuard(r.config)(change.effect); err != nil {
		p.Guarded = true
		return reject(err)
	}
	return p
}

// PlanChange returns what would change if engines replaced one configuration by another. It contacts no engine: in a cluster,
// each one would do a part of the change. Both configurations must have been parsed with config.Options.Describe.
func PlanChange(before, after *config.Config) (api.Plan, error) {
	log := slog.New(slog.DiscardHandler)
	t := &targets{engine: engine.New(engine.Config{}), sharing: alone{}, processes: &processes{state: before.Engine.State, runtimes: new(container.Runtimes), saved: &saved{}, log: log}, saved: &saved{}, isResumed: true, log: log}
	var err error
	if t.restarts, err = restart.New(restart.Config{Engine: t.engine, Logger: log}); err != nil {
		return api.Plan{}, err
	}
	was, is := *before, *after
	was.Cluster, is.Cluster = nil, nil
	now, err := t.desired(&was)
	if err != nil {
		return api.Plan{}, err
	}
	if _, err := t.engine.Apply(now.set); err != nil {
		return api.Plan{}, err
	}
	if err := t.restarts.Apply(now.units); err != nil { // the controller never runs and starts nothing
		return api.Plan{}, err
	}
	l := planner{agent.New(t.part()), t, blocksOf(before), func(text string) string { return text }}
	return l.plan(loadResult{config: &is, before: &was}), nil
}

// Limits on the lists in a plan.
const (
	maxPlanned       = 1000   // targets
	maxPlannedProbes = 10_000 // of all listed targets; further targets are omitted
)

// planned collects the target changes of a plan.
type planned struct {
	plan          *api.Plan
	targets       map[string]*api.TargetChange
	before, after *config.Config // before is nil if unknown
}

// change returns the entry of a target, and creates it with the action "changed" if there is none.
func (p *planned) change(target string) *api.TargetChange {
	c := p.targets[target]
	if c == nil {
		c = &api.TargetChange{Name: target, Action: "changed"}
		p.targets[target] = c
	}
	return c
}

// addTargets adds the targets that are added, removed or have different arguments, and the changes to their instances.
func (p *planned) addTargets(e restart.Effect, instances map[string]string, units map[string]restart.Unit) {
	for _, target := range e.Added {
		p.change(target).Action = "added"
	}
	for _, target := range e.Removed {
		p.change(target).Action = "removed"
	}
	for target, what := range instances {
		p.change(target).Instance = what
	}
	for target := range units {
		if c := p.targets[target]; p.before == nil || c != nil && c.Action == "added" {
			continue
		}
		if differ := p.after.Differences(p.before, "target", target); len(differ) > 0 {
			p.change(target).Arguments = argumentChanges(differ)
		}
	}
}

// instanceChanges returns by target whether its process is started, restarted or ended.
func instanceChanges(now *restart.Controller, e restart.Effect, units map[string]restart.Unit) map[string]string {
	all := map[string]string{}
	for _, target := range e.Removed {
		if runs(now.Driver(target)) {
			all[target] = "end"
		}
	}
	for _, target := range e.Restarted {
		if all[target] = "end"; runs(units[target].Driver) {
			all[target] = "restart"
		}
	}
	for target, u := range units {
		if runs(u.Driver) && !runs(now.Driver(target)) {
			all[target] = "start"
		}
	}
	return all
}

// countInstances counts the results of instanceChanges.
func countInstances(all map[string]string) (n api.InstanceChanges) {
	for _, what := range all {
		switch what {
		case "start":
			n.Started++
		case "restart":
			n.Restarted++
		default:
			n.Ended++
		}
	}
	return n
}

// runs reports whether the engine starts and ends the instances of a driver.
func runs(d restart.Driver) bool {
	_, external := d.(restart.External)
	return d != nil && !external
}

func (p *planned) addProbe(change engine.ProbeChange) {
	c := p.change(change.ID.Target)
	one := api.ProbeChange{ID: change.ID.String(), Action: string(change.Action), Moved: change.Moved}
	if p.before != nil && (change.Action == engine.ProbeUpdated || change.Action == engine.ProbeReplaced) {
		one.Arguments = argumentChanges(p.after.Differences(p.before, "probe", change.ID.String()))
	}
	c.Probes = append(c.Probes, one)
}

// finish counts the targets and lists the first ones that change. now is the number of current targets.
func (p *planned) finish(now int) {
	n, probes := &p.plan.Targets, 0
	for _, target := range slices.Sorted(maps.Keys(p.targets)) {
		c := p.targets[target]
		switch c.Action {
		case "added":
			n.Added++
		case "removed":
			n.Removed++
		default:
			n.Changed++
		}
		if probes += len(c.Probes); len(p.plan.Changes) == maxPlanned || probes > maxPlannedProbes {
			p.plan.Omitted++
			continue
		}
		p.plan.Changes = append(p.plan.Changes, *c)
	}
	n.Kept = now - n.Removed - n.Changed
}

// blockChanges returns the changes to groups, gateways, maintenances and notify blocks, sorted by type and name. before is nil
// if there was no configuration.
func blockChanges(before, after *config.Config) []api.BlockChange {
	if before == nil {
		return nil
	}
	return slices.Concat(changesOf("gateway", before.Gateways, after.Gateways), changesOf("group", before.Groups, after.Groups),
		changesOf("maintenance", before.Maintenances, after.Maintenances), changesOf("notify", before.Notifiers, after.Notifiers))
}

// changesOf returns the blocks of a type that were added, removed or changed.
func changesOf[T any](kind string, before, after map[string]T) (all []api.BlockChange) {
	both := map[string]T{}
	maps.Copy(both, before)
	maps.Copy(both, after)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		was, had := before[name]
		is, has := after[name]
		action := "changed"
		switch {
		case !had:
			action = "added"
		case !has:
			action = "removed"
		case reflect.DeepEqual(was, is):
			continue
		}
		all = append(all, api.BlockChange{Type: kind, Name: name, Action: action})
	}
	return all
}

// blocksOf returns a configuration with only the blocks that blockChanges compares.
func blocksOf(c *config.Config) *config.Config {
	return &config.Config{Gateways: c.Gateways, Groups: c.Groups, Maintenances: c.Maintenances, Notifiers: c.Notifiers}
}

// moduleChanges returns the changes to the probe modules, sorted by name.
func moduleChanges(before, after *config.Config) (changes []api.BlockChange) {
	if before == nil {
		return nil
	}
	for _, c := range changesOf("probe_module", before.ProbeModules, after.ProbeModules) {
		if c.Action == "changed" {
			c.Arguments = argumentChanges(after.Differences(before, "probe_module", c.Name))
		}
		if c.Action != "changed" || len(c.Arguments) > 0 {
			changes = append(changes, c)
		}
	}
	return changes
}

// settingChanges returns the changed arguments of the engine block.
func settingChanges(before, after *config.Config) []api.ArgumentChange {
	if before == nil {
		return nil
	}
	changes := argumentChanges(after.Differences(before, "engine", ""))
	for i := range changes {
		name, _, _ := strings.Cut(changes[i].Name, ".")
		changes[i].Restart = !slices.Contains(changeable, name)
	}
	return changes
}

func argumentChanges(differ []config.Difference) []api.ArgumentChange {
	changes := make([]api.ArgumentChange, len(differ))
	for i, f := range differ {
		changes[i] = api.ArgumentChange{Name: f.Name, Before: f.Before, After: f.After}
	}
	return changes
}
