package daemon

import (
	"github.com/sonde-probe/sonde/agent"
	"github.com/sonde-probe/sonde/api/blackbox"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/restart"
)

// parts are the parts of the engine, in the order in which daemon.makeParts creates them. newAgent creates the agent.
type parts struct {
	saved     *saved
	processes *processes
	beats     *beatprobe.Registry // passed in
	engine    *engine.Engine
	probes    *blackbox.Server
	cluster   *cluster // nil for none
	finder    *discover.Finder
	restarts  *restart.Controller
	pauses    *pause.Keeper
	groups    *group.Groups
	gateways  *gateway.Gateways
	notifiers *notify.Notifiers
	targets   *targets
	agent     *agent.Agent
}

// newAgent returns the agent of the parts that a configuration changes at run time, in the order in which their changes are
// committed: gateways and notifiers follow groups, and groups follow targets.
func (p *parts) newAgent() *agent.Agent {
	return agent.New(
		p.targets.part(),
		agent.Part{Name: "discovery", Run: p.finder.Run, Plan: func(next *config.Config) (agent.Change, error) {
			return changeOf(p.finder.Plan(specsOf(next.Discoveries)), nil)
		}},
		agent.Part{Name: "maintenance", Plan: p.targets.planMaintenances, Run: p.pauses.Run},
		agent.Part{Name: "groups", Plan: p.planGroups, Run: p.groups.Run},
		agent.Part{Name: "gateways", Run: p.gateways.Run, Plan: func(next *config.Config) (agent.Change, error) {
			hasGroup := func(name string) bool { _, ok := next.Groups[name]; return ok }
			return changeOf(p.gateways.Plan(handlers.GatewaySpecs(next.Gateways), hasGroup))
		}},
		agent.Part{Name: "notifiers", Run: p.notifiers.Run, Plan: func(next *config.Config) (agent.Change, error) {
			return changeOf(p.notifiers.Plan(handlers.NotifySpecs(next.Notifiers)))
		}},
		agent.Part{Name: "probe modules", Plan: func(next *config.Config) (agent.Change, error) {
			return changeOf(p.probes.Plan(modulesOf(next)))
		}},
	)
}

// modulesOf returns the modules of /probe in a configuration.
func modulesOf(c *config.Config) map[string]blackbox.Module {
	all := make(map[string]blackbox.Module, len(c.ProbeModules))
	for name, m := range c.ProbeModules {
		all[name] = blackbox.Module(m)
	}
	return all
}

// specsOf returns the specs of discovery blocks by name.
func specsOf(all []config.Discovery) map[string]discover.Spec {
	specs := make(map[string]discover.Spec, len(all))
	for _, d := range all {
		specs[d.Name] = discover.Spec{Source: d.Source(), AllowEmpty: d.AllowEmpty, LeftOut: d.LeftOut}
	}
	return specs
}

// changeOf returns the change of a part that needs neither Hold nor Discard.
func changeOf(commit func(), err error) (agent.Change, error) {
	return agent.Change{Commit: commit}, err
}

// planGroups plans the groups. Their followers receive targets and groups in one change.
func (p *parts) planGroups(next *config.Config) (agent.Change, error) {
	rules := make(map[string]group.Rule, len(next.Groups))
	for name, g := range next.Groups {
		rules[name] = group.Rule(g)
	}
	commit, err := p.groups.Plan(rules)
	release := func() {}
	return agent.Change{Hold: func() { release = p.groups.Hold() }, Commit: func() { commit(); release() }}, err
}
