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

// planner says what a reload would do.
type planner struct {
	agent   *agent.Agent
	targets *targets       // of agent
	blocks  *config.Config // see blockChanges
	redact  func(text string) string
}

// planner returns what plans for the configuration in use.
func (d *daemon) planner() *planner {
	return &planner{d.agent, d.targets, d.blocks, d.queue.Secrets.Text}
}

// plan returns what reload would do with a configuration that was loaded. It plans that, as reload does, and discards it.
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
	made.Discard() // before the rest, which takes time with many targets
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

// PlanChange returns what engines would do that use a configuration, and are to use another one. It asks none: of those
// in a cluster each does a part of it. Both must have been parsed with config.Options.Describe.
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
	if err := t.restarts.Apply(now.units); err != nil { // it never runs, and starts nothing
		return api.Plan{}, err
	}
	l := planner{agent.New(t.part()), t, blocksOf(before), func(text string) string { return text }}
	return l.plan(loadResult{config: &is, before: &was}), nil
}

// Bounds on what a plan lists.
const (
	maxPlanned       = 1000   // targets
	maxPlannedProbes = 10_000 // probes of all these targets, after which there is no further target
)

// planned collects the changes of targets for a plan.
type planned struct {
	plan          *api.Plan
	targets       map[string]*api.TargetChange
	before, after *config.Config // before is nil if it is not known
}

// change returns what becomes of a target: it is changed, if nothing else is known.
func (p *planned) change(target string) *api.TargetChange {
	c := p.targets[target]
	if c == nil {
		c = &api.TargetChange{Name: target, Action: "changed"}
		p.targets[target] = c
	}
	return c
}

// addTargets adds the targets that appear, disappear or have other arguments, and what becomes of
// their instances.
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

// instanceChanges returns by target which processes an effect starts, restarts or ends.
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

// finish counts the targets, of which there are some now, and lists the first of those that change.
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

// blockChanges returns what becomes of groups, gateways, maintenances and notify blocks, sorted by type
// and name. Before is nil if there was no configuration.
func blockChanges(before, after *config.Config) []api.BlockChange {
	if before == nil {
		return nil
	}
	return slices.Concat(changesOf("gateway", before.Gateways, after.Gateways), changesOf("group", before.Groups, after.Groups),
		changesOf("maintenance", before.Maintenances, after.Maintenances), changesOf("notify", before.Notifiers, after.Notifiers))
}

// changesOf returns what becomes of the blocks of a type: those that only one of two maps has, or both have differently.
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

// blocksOf returns a configuration that has the blocks which blockChanges compares.
func blocksOf(c *config.Config) *config.Config {
	return &config.Config{Gateways: c.Gateways, Groups: c.Groups, Maintenances: c.Maintenances, Notifiers: c.Notifiers}
}

// moduleChanges returns what becomes of the probe modules, sorted by name.
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

// settingChanges returns the arguments of the engine block that differ.
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
