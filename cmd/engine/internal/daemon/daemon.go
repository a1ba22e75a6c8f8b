package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-probe/sonde/agent"
	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/blackbox"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/control"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/cmd/engine/internal/staticpods"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
)

// daemon is a running sonde: an engine, the controller that restarts its targets,
// and the server that shows them.
type daemon struct {
	flags   *flags
	paths   []string
	version string
	level   *slog.LevelVar
	log     *slog.Logger
	queue   *cli.LogQueue // that log writes to
	signals *signals

	manager serviceManager

	pods       *staticpods.Dir // nil for none
	config     *config.Config  // the configuration in use, without the pods; nil without pods
	blocks     *config.Config  // what blockChanges compares of the configuration in use; nil before the first
	targets    int             // in use, with the pods
	plugins    atomic.Pointer[handlers.Plugins]
	settings   config.Engine // those in use
	agent      *agent.Agent
	probed     *targetsPart // of agent
	engine     *engine.Engine
	restarts   *restart.Controller
	openStore  OpenStore
	cluster    *cluster         // nil for none
	pushed     *accepted.Pushed // the revision in use of what is pushed to the cluster; nil for none
	inputs     *accepted.Inputs // of the configuration in use, which are not changed; nil for none
	keptFile   keptFile         // where they are kept for the next start
	pauses     *pause.Keeper
	groups     *group.Groups
	gateways   *gateway.Gateways
	notifiers  *notify.Notifiers
	probes     *blackbox.Server
	beats      *beatprobe.Registry
	datagrams  *beatprobe.Receiver        // of beats; nil for none
	state      *store.Store               // nil for none
	statePath  string                     // absolute, of the file that a symbolic link names
	left       store.Restored             // by the previous engine, until it is applied
	processes  *process.Directory         // of those that outlive the engine; nil for none
	outputs    process.Outputs            // what has become of the lines of processes
	located    atomic.Pointer[[]byte]     // the location of processes, for the state file
	opening    chan openedDir             // will have processes, once the disk responds; nil if nothing is opened
	survivors  process.Survivors          // processes that the previous engine has left running
	abandoned  []process.Abandoned        // processes of engines whose state files are in other directories
	api        *api.Server                // nil for none
	listener   net.Listener               // nil for none
	control    *control.Socket            // nil for none
	running    atomic.Bool                // the engine's loop runs
	lastReload atomic.Pointer[api.Reload] // nil until the first configuration is applied
	watch      fileWatch
	jobs       chan *job     // for handleSignals
	ended      chan struct{} // closed when run returns

	abandonedStates []handlers.AbandonedState // of other engines, in the directory of the state file

	seriesOmitted bool // /metrics has no series of each probe, which was logged
}

// goThreads is Go's own limit of threads, at which it ends a program (see
// debug.SetMaxThreads). Each command that runs needs a thread beside them.
const goThreads = 10_000

// prepare makes all parts, opens the listener and applies the configuration. It
// starts no process.
func (d *daemon) prepare(c *config.Config) (err error) {
	d.settings = c.Engine
	if d.pods, err = d.flags.pods.Open(c.Engine.Compatibility, d.log); err != nil {
		return err
	}
	handlers.LimitMemory(c.Engine)
	debug.SetMaxThreads(goThreads + c.Engine.Concurrency)
	d.engine = engine.New(engine.Config{
		Concurrency:      c.Engine.Concurrency,
		Compatibility:    c.Engine.Compatibility,
		NoIsolationCheck: c.Engine.NoIsolationCheck,
		Logger:           d.log,
		Recorded:         d.markRecord,
		Redact:           d.queue.Secrets.Text,
	})
	if d.cluster, err = d.openCluster(c.Cluster); err != nil {
		return err
	}
	d.probes = blackbox.New(d.engine)
	d.beats.Configure(beatprobe.RegistryConfig{Logger: d.log, Isolated: func() bool { return d.engine.Health().Isolated }, MaxAge: d.maxBeatAge(), Changed: d.markBeat, SentChanged: d.markSent})
	restarts, _ := c.Engine.Settings.(restart.Config)
	restarts.Engine, restarts.Logger, restarts.Redact = d.engine, d.log, d.queue.Secrets.Text
	restarts.Changed, restarts.BudgetChanged, restarts.StoppedChanged = d.markRestarts, d.markSpent, d.markStopped
	restarts.MayAct, restarts.Floor = d.cluster.mayRestart, floor{d}
	if d.cluster != nil {
		restarts.IsShared = d.cluster.isBrought
	}
	d.restarts, err = restart.New(restarts)
	if err != nil {
		return errors.Join(err, d.close())
	}
	vantage := engine.Config{
		Concurrency: c.Engine.Concurrency, Compatibility: c.Engine.Compatibility, NoIsolationCheck: c.Engine.NoIsolationCheck,
		Redact: d.queue.Secrets.Text,
	}
	shared := fleet.Config{Engine: d.engine, Restarts: d.restarts, Notices: notices{d}, Floor: floor{d}, Vantage: vantage, Logger: d.log}
	if err := d.cluster.makeFleet(shared, d.settings.Resume); err != nil {
		return errors.Join(err, d.close())
	}
	pauses := pause.Config{Engine: d.engine, Others: d.cluster.others(), IsShared: d.cluster.isShared, Logger: d.log, Changed: d.markPauses}
	if d.cluster != nil {
		pauses.Store = d.cluster.coordinator
	}
	d.pauses = pause.New(pauses)
	d.cluster.follow(d.pauses)
	groups := group.Config{Engine: d.engine, Logger: d.log}
	if d.cluster != nil {
		groups.Others, groups.Reserved = d.cluster.others(), d.cluster.fleet.Reserved
	}
	d.groups = group.New(groups)
	d.gateways = gateway.New(gateway.Config{Groups: d.groups, Logger: d.log})
	d.notifiers = notify.New(notify.Config{
		Engine: d.engine, Groups: d.groups, Logger: d.log, Redact: d.queue.Secrets.Text, Changed: d.markNotified,
		MayTell: d.cluster.mayTell, TellerOf: d.cluster.tellerOf,
		IsConfigured: d.mayExist, IsEnding: func() bool { return d.restarts.IsStopping() },
	})
	d.abandonedStates = handlers.FindAbandonedStates(c.Engine.State)
	if err := d.openState(); err != nil {
		return errors.Join(err, d.close())
	}
	d.abandoned = d.findAbandoned()
	if err := d.listen(); err != nil {
		return errors.Join(err, d.close())
	}
	d.agent = d.newAgent()
	done, err := d.apply(c, anyEffect)
	if err != nil {
		return errors.Join(err, d.close())
	}
	d.accepted(&job{trigger: byStart}, done, c.Engine, nil)
	d.logChanges("configuration applied", done.Changes)
	return nil
}

// close closes what prepare has opened.
func (d *daemon) close() (err error) {
	if d.listener != nil {
		err = d.listener.Close()
	}
	d.control.Close()
	if d.datagrams != nil {
		err = errors.Join(err, d.datagrams.Close())
	}
	if d.state != nil {
		err = errors.Join(err, d.state.Close())
	}
	d.processes.Close()
	return errors.Join(err, d.cluster.close())
}

// applied is what a configuration that was put into use has changed.
type applied struct {
	engine.Changes
	instances api.InstanceChanges
	blocks    []api.BlockChange
}

// apply puts a configuration into use, with the pods: all of it, or nothing, if a part cannot use it, or check has
// an error about what would happen to the targets in use.
func (d *daemon) apply(c *config.Config, check func(restart.Effect) error) (applied, error) {
	defer d.outputs.Keep(d.isConfigured) // drivers of a configuration that is rejected have counters, too
	d.addSecrets(c.Secrets)
	p, err := d.agent.Plan(c)
	if err != nil {
		return applied{}, err
	}
	t := d.probed.change
	if err := check(t.effect); err != nil {
		p.Discard()
		return applied{}, err
	}
	p.Commit()
	if d.targets = len(t.next.config.Targets); d.pods != nil {
		d.config = c
	}
	done := applied{t.changes, t.instances, blockChanges(d.blocks, c)}
	d.blocks = blocksOf(c)
	return done, nil
}

// isConfigured reports whether a target has a driver now.
func (d *daemon) isConfigured(target string) bool { return d.restarts.Driver(target) != nil }

// mayExist reports whether a target has a driver now, or may become one of this engine.
func (d *daemon) mayExist(target string) bool {
	return d.isConfigured(target) || d.cluster.mayOwn(target)
}

// desired is what a configuration asks for, with the pods.
type desired struct {
	config *config.Config
	set    probe.Set               // the probes that only this engine makes
	units  map[string]restart.Unit // of the targets that are not shared
	shared fleet.Targets           // by the engines of the cluster; empty without one
}

// has reports whether there is a target.
func (n *desired) has(target string) bool {
	_, isOwn := n.units[target]
	_, isShared := n.shared.Units[target]
	return isOwn || isShared
}

// desired returns what a configuration asks for. For a plan it makes nothing.
func (d *daemon) desired(c *config.Config, plan bool) (*desired, error) {
	all := d.pods.Add(c)
	units, err := d.units(all, plan)
	if err != nil {
		return nil, err
	}
	if err := restart.CheckUnits(units); err != nil {
		return nil, err
	}
	return d.divide(c, &desired{config: all, set: all.Set, units: units})
}

// addSecrets has values replaced in outputs. Those of an earlier configuration stay known.
func (d *daemon) addSecrets(values []string) {
	if !d.queue.Secrets.Add(values) {
		d.log.Warn("not all sensitive values are replaced in outputs: there are too many", "limit", redact.MaxValues, "limit_bytes", redact.MaxText)
	}
}

// dependencies returns which targets depend on which others.
func dependencies(c *config.Config) map[string][]string {
	all := map[string][]string{}
	for name, t := range c.Targets {
		if len(t.DependsOn) > 0 {
			all[name] = t.DependsOn
		}
	}
	return all
}

// dampings returns which targets are damped when they flap.
func dampings(c *config.Config) map[string]probe.Damping {
	all := map[string]probe.Damping{}
	for name, t := range c.Targets {
		if t.Damping != (probe.Damping{}) {
			all[name] = t.Damping
		}
	}
	return all
}

// groupRules returns the groups of a configuration.
func groupRules(c *config.Config) map[string]group.Rule {
	rules := make(map[string]group.Rule, len(c.Groups))
	for name, g := range c.Groups {
		rules[name] = group.Rule(g)
	}
	return rules
}

// floor is the restart.Floor and the fleet.Floor of a daemon: its groups, which are made after the controller.
type floor struct{ *daemon }

// Reserve implements restart.Floor.
func (f floor) Reserve(target, instance string, forced bool) (withheldBy string) {
	return f.groups.Reserve(target, instance, forced)
}

// Release implements restart.Floor.
func (f floor) Release(target string) { f.groups.Release(target) }

// Floors implements fleet.Floor.
func (f floor) Floors(target string) []string { return f.groups.Floors(target) }

// WithheldBy implements fleet.Floor.
func (f floor) WithheldBy(target string, reserved map[string][]string) string {
	return f.groups.WithheldBy(target, reserved)
}

// maxLoopDelay is how late the engine's loop may be before the engine hangs, to /healthz and to the service
// manager. A reload of a million probes keeps it from running for seconds.
const maxLoopDelay = 15 * time.Second

// alive returns why the engine does not make attempts, or nil.
func (d *daemon) alive() error {
	if !d.running.Load() {
		return errors.New("the engine is not running")
	}
	if late := d.engine.LoopDelay(); late > maxLoopDelay {
		return fmt.Errorf("the engine hangs: its loop should have run %v ago", late.Round(time.Second))
	}
	return nil
}

// ready returns why the engine's verdicts are not to be trusted now, or nil.
func (d *daemon) ready() error { return errors.Join(d.alive(), d.engine.Health().Err()) }

// run runs all parts until a signal stops them or one of them fails. Processes stop
// first, while the engine and the API still run and show it.
func (d *daemon) run(ctx context.Context) error {
	d.ended = make(chan struct{})
	defer close(d.ended)
	defer func() { d.processes.Close() }()
	parts, ctx := errgroup.WithContext(ctx)
	running, shutdown := context.WithCancel(ctx)
	defer shutdown()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	parts.Go(func() error {
		defer stopServing()
		return d.runTargets(running)
	})
	parts.Go(func() error { return d.agent.Run(serving) })
	d.runListeners(parts, serving)
	d.manager.notify(isReady)
	parts.Go(func() error { d.manager.reportAlive(serving, d.alive); return nil })
	parts.Go(func() error { d.warnOfAbandoned(running); return nil })
	if d.state != nil {
		parts.Go(func() error {
			d.state.Run(serving, d.engine, stateValues{d.restarts, d.pauses, d.engine, d.notifiers, d.beats, &d.located})
			return nil
		})
		parts.Go(func() error { d.endSurvivors(running); return nil })
	}
	go d.watch.run(serving, func() { // the end does not wait for it, since a disk may hang
		select {
		case d.jobs <- &job{trigger: byWatch}:
		case <-serving.Done():
		}
	})
	parts.Go(func() error {
		defer d.exitAt(d.signals.stop)
		return d.handleSignals(serving, shutdown)
	})
	err := parts.Wait()
	var exit *cli.ExitError
	if err != nil && !errors.As(err, &exit) {
		d.log.Error("engine stopped", "error", err)
		return cli.ErrReported(cli.ExitFailed)
	}
	d.log.Info("engine stopped")
	return err
}

// runTargets runs instances, and is a member of the cluster, until ctx is done. Then both end at the same time: the
// processes of this host do not wait for a store that is away, and the lease lasts until the restarts that are being
// made have ended.
func (d *daemon) runTargets(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var membership sync.WaitGroup
	defer membership.Wait()
	defer end() // also after a panic
	membership.Go(func() { d.cluster.run(ctx) })
	return d.restarts.Run(ctx)
}

// runListeners runs what listens for others, until serving is done.
func (d *daemon) runListeners(parts *errgroup.Group, serving context.Context) {
	parts.Go(func() error { d.beats.Run(serving); return nil })
	if d.datagrams != nil {
		parts.Go(func() error { d.datagrams.Run(serving); return nil })
	}
	if d.listener != nil {
		parts.Go(func() error { return d.api.Serve(serving, d.listener) })
	}
	if d.control != nil {
		parts.Go(func() error {
			defer d.control.Close()
			return d.api.Serve(serving, d.control.Listener)
		})
	}
}
