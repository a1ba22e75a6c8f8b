package daemon

import (
	"context"

	"github.com/sonde-probe/sonde/agent"
	"github.com/sonde-probe/sonde/api/blackbox"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/restart"
)

// parts are what the engine is made of. daemon.makeParts makes them, each with those before it, and newAgent the agent.
type parts struct {
	saved     *saved
	processes *processes
	beats     *beatprobe.Registry // given
	engine    *engine.Engine
	probes    *blackbox.Server
	cluster   *cluster // nil for none
	restarts  *restart.Controller
	pauses    *pause.Keeper
	groups    *group.Groups
	gateways  *gateway.Gateways
	notifiers *notify.Notifiers
	targets   *targets
	agent     *agent.Agent
}

// newAgent returns the parts that a configuration changes while the engine runs, in the order in which their changes are
// committed: gateways and notifiers follow groups, and groups follow targets.
func (p *parts) newAgent() *agent.Agent {
	return agent.New(
		p.targets,
		&part{"maintenance", p.targets.planMaintenances, p.pauses.Run},
		groupsPart{p.groups},
		&part{"gateways", func(next *config.Config) (func(), error) {
			hasGroup := func(name string) bool { _, ok := next.Groups[name]; return ok }
			return p.gateways.Plan(handlers.GatewaySpecs(next.Gateways), hasGroup)
		}, p.gateways.Run},
		&part{"notifiers", func(next *config.Config) (func(), error) {
			return p.notifiers.Plan(handlers.NotifySpecs(next.Notifiers))
		}, p.notifiers.Run},
		&part{"probe modules", func(next *config.Config) (func(), error) {
			return p.probes.Plan(handlers.ProbeModules(next.ProbeModules))
		}, nothingToRun},
	)
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
type groupsPart struct{ *group.Groups }

// Name implements agent.Part.
func (groupsPart) Name() string { return "groups" }

// Plan implements agent.Part.
func (p groupsPart) Plan(next *config.Config) (agent.Change, error) {
	commit, err := p.Groups.Plan(groupRules(next))
	if err != nil {
		return nil, err
	}
	return &groupsChange{hold: p.Hold, commit: commit}, nil
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
