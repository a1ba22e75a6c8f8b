package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/blackbox"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet"
	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/notify"
	"github.com/sonde-probe/sonde/pause"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// daemon is a running sonde: an engine, the controller that restarts its targets, and the API server.
type daemon struct {
	flags     *flags
	paths     []string
	version   string
	openStore OpenStore
	level     *slog.LevelVar
	log       *slog.Logger
	queue     *cli.LogQueue // log writes to it
	signals   *signals
	manager   serviceManager

	settings config.Engine // in use
	parts
	listeners listeners

	// The configuration in use:
	config        *config.Config // without the pods; nil without pods
	blocks        *config.Config // the blocks that blockChanges compares; nil before the first configuration
	count         int            // of targets, including the pods
	plugins       atomic.Pointer[handlers.Plugins]
	pushed        *accepted.Inputs // the pushed revision; nil for none
	inputs        *accepted.Inputs // inputs of the configuration, immutable; nil for none
	keptFile      *keptFile        // keeps the inputs for the next start; nil without state
	seriesOmitted bool             // /metrics has no series per probe, which was logged

	lastReload atomic.Pointer[api.Reload] // nil until the first configuration is applied
	watch      fileWatch
	foundMore  wake.Signal   // the finder has new results
	jobs       jobQueue      // for handleSignals
	ended      chan struct{} // closed when run returns
}

// goThreads is Go's default limit on threads, at which it ends a program (see debug.SetMaxThreads). Each running command needs
// one more thread.
const goThreads = 10_000

// prepare creates all parts, opens the listener and applies the configuration. It starts no process.
func (d *daemon) prepare(c *config.Config) (err error) {
	d.settings = c.Engine
	pods, err := d.flags.pods.Open(c.Engine.Compatibility, d.log)
	if err != nil {
		return err
	}
	handlers.LimitMemory(c.Engine)
	debug.SetMaxThreads(goThreads + c.Engine.Concurrency)
	if err := d.makeParts(c); err != nil {
		return errors.Join(err, d.close())
	}
	d.targets.pods = pods
	if err := d.openState(); err != nil {
		return errors.Join(err, d.close())
	}
	if err := d.listeners.listen(d.apiConfig(), c.Engine, d.flags.addressFile); err != nil {
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

// makeParts creates all parts. Each part may use the parts created before it.
func (d *daemon) makeParts(c *config.Config) (err error) {
	d.saved = &saved{log: d.log}
	d.processes = &processes{state: c.Engine.State, runtimes: d.flags.inputs.Runtimes, saved: d.saved, log: d.log, sensitive: d.addSecrets}
	of := engine.Config{
		Concurrency: c.Engine.Concurrency, Compatibility: c.Engine.Compatibility, NoIsolationCheck: c.Engine.NoIsolationCheck, Redact: d.queue.Secrets.Text,
	}
	vantage := of
	of.Logger, of.Recorded = d.log, d.recorded
	d.engine = engine.New(of)
	d.probes = blackbox.New(d.engine)
	d.foundMore = wake.New()
	d.finder = discover.NewFinder(discover.FinderConfig{Logger: d.log, Changed: d.foundMore.Set})
	if p := d.plugins.Load(); p != nil && p.Inputs != nil {
		d.finder.Restore(p.Inputs.Discovered)
	}
	d.probes.ShowsSettings = api.ShowsSettings
	d.beats.Configure(beatprobe.RegistryConfig{
		Logger: d.log, Isolated: func() bool { return d.engine.Health().Isolated }, MaxAge: maxBeatAge(c.Engine),
		Changed:     func(target string) { d.saved.mark(keyBeat+target, false) },
		SentChanged: func(key string, isUrgent bool) { d.saved.mark(keySent+key, isUrgent) },
	})
	if d.cluster, err = d.openCluster(c.Cluster); err != nil {
		return err
	}
	floor, notices := &floor{}, &notices{}
	if err := d.makeRestarts(c, floor); err != nil {
		return err
	}
	if d.cluster != nil {
		shared := fleet.Config{Engine: d.engine, Restarts: d.restarts, Notices: notices, Floor: floor, Vantage: vantage, Logger: d.log}
		d.cluster.makeFleet(shared, d.settings.Resume)
	}
	d.makeFollowers()
	floor.Groups, notices.Notifiers = d.groups, d.notifiers
	d.targets = &targets{
		engine: d.engine, restarts: d.restarts, processes: d.processes, sharing: alone{}, pauses: d.pauses, beats: d.beats, saved: d.saved,
		resume: c.Engine.Resume, log: d.log,
	}
	if d.cluster != nil {
		d.targets.sharing = d.cluster
	}
	return nil
}

// makeRestarts creates the controller of restarts.
func (d *daemon) makeRestarts(c *config.Config, floor *floor) (err error) {
	of, _ := c.Engine.Settings.(restart.Config)
	of.Budget = budgetOf(of.Budget, c.Engine.Compatibility)
	of.Engine, of.Logger, of.Redact = d.engine, d.log, d.queue.Secrets.Text
	of.Changed = func(target string) { d.saved.mark(keyRestarts+target, false) }
	of.StoppedChanged = func() { d.saved.mark(keyStopped, false) }
	of.Disruptions = floor
	if d.cluster != nil {
		of.MayAct, of.IsShared = d.cluster.mayRestart, d.cluster.isBrought
	}
	d.restarts, err = restart.New(of)
	return err
}

// budgetOf returns the restart budget of an engine: the configured one or the default. A kubelet has no budget; there,
// maxUnavailable of a Deployment bounds the number of unavailable pods.
func budgetOf(configured restart.Budget, c probe.Compatibility) restart.Budget {
	if c == probe.Kubelet {
		return configured
	}
	return cmp.Or(configured, restart.DefaultBudget)
}

// makeFollowers creates the parts that follow the targets.
func (d *daemon) makeFollowers() {
	pauses := pause.Config{Engine: d.engine, Logger: d.log, Changed: func() { d.saved.mark(keyPauses, false) }}
	groups := group.Config{Engine: d.engine, Logger: d.log}
	notices := notify.Config{
		Engine: d.engine, Logger: d.log, Redact: d.queue.Secrets.Text, Changed: d.notified,
		IsConfigured: d.mayExist, IsEnding: func() bool { return d.restarts.IsStopping() },
	}
	if c := d.cluster; c != nil {
		pauses.Others, pauses.Coordinator, pauses.IsShared = c.fleet.Others(), c.coordinator, c.isShared
		groups.Engine, groups.Reserved = c.fleet.Union(), c.fleet.Reserved
		notices.MayNotify, notices.NotifierOf, notices.IsDoubted = c.mayNotify, c.notifierOf, c.isDoubted
	}
	d.pauses = pause.New(pauses)
	if d.cluster != nil {
		d.cluster.pauses = d.pauses
	}
	d.groups = group.New(groups)
	d.gateways = gateway.New(gateway.Config{Groups: d.groups, Logger: d.log})
	notices.Groups = d.groups
	d.notifiers = notify.New(notices)
}

// openState opens the state file, if one is configured, and finds the processes that the previous engine left running.
func (d *daemon) openState() error {
	if d.settings.State == "" {
		return nil
	}
	if _, err := os.Stat(d.settings.State); err != nil {
		// Fail before the state file is created if a running engine, whose state file was moved, still has the directory: with
		// a new file at the old path, that engine would lose its processes.
		if err := d.processes.openDir(""); err != nil {
			return err
		}
	}
	if err := d.saved.open(d.settings.State, maxStateAge(d.settings), &d.parts); err != nil {
		return err
	}
	return d.processes.takeOver()
}

// recorded marks a record of a target as changed. A history is urgent: if the engine is killed, the last transition is stored
// nowhere else, and the next engine would resume from the earlier state.
func (d *daemon) recorded(target string, r engine.Record) {
	switch r {
	case engine.RecordHistory:
		d.notifiers.TransitionsChanged()
		d.saved.mark(keyHistory+target, true)
	case engine.RecordUptime:
		d.saved.mark(keyUptime+target, false)
	case engine.RecordPenalty:
		d.saved.mark(keyPenalty+target, false)
	case engine.RecordOutcomes:
		d.saved.mark(keyOutcomes+target, false)
	}
}

// notified marks the value of a notifiers' key as changed. The fleet is notified as well if the key is about a group or a
// shared target, so that the next owner gets it. Group notices are urgent because no history contains them. A cursor is not
// urgent: transitions after an old cursor are sent again.
func (d *daemon) notified(key string) {
	subject, isNotified := notify.NotifiedSubject(key)
	if isNotified && d.cluster != nil {
		d.cluster.markTold(subject)
	}
	d.saved.mark(keyNotify+key, isNotified && subject.Kind == notify.KindGroup)
}

// close closes the resources that prepare has opened.
func (d *daemon) close() (err error) {
	err = errors.Join(d.listeners.close(), d.saved.close())
	d.processes.closeDir()
	if d.cluster != nil {
		err = errors.Join(err, d.cluster.store.Close())
	}
	return err
}

// mayExist reports whether a target has a driver now, or may become one of this engine's targets.
func (d *daemon) mayExist(target string) bool {
	return d.targets.isConfigured(target) || d.targets.sharing.mayOwn(target)
}

// addSecrets adds values to be redacted in outputs. Values of earlier configurations stay redacted.
func (d *daemon) addSecrets(values []string) {
	if !d.queue.Secrets.Add(values) {
		d.log.Warn("too many sensitive values: not all of them are redacted in outputs", "limit", redact.MaxValues, "limit_bytes", redact.MaxText)
	}
}

// floor is the restart.DisruptionBudget and the fleet.Floor of an engine. It wraps the groups, which are created after the
// controller.
type floor struct{ *group.Groups }

// maxLoopDelay is the delay of the engine's loop beyond which /healthz and the service manager consider the engine hung. A
// reload of a million probes blocks the loop for seconds.
const maxLoopDelay = 15 * time.Second

// alive returns why the engine makes no attempts, or nil.
func (d *daemon) alive() error {
	if !d.targets.runs.Load() {
		return errors.New("the engine is not running")
	}
	if late := d.engine.LoopDelay(); late > maxLoopDelay {
		return fmt.Errorf("the engine hangs: its loop is %v late", late.Round(time.Second))
	}
	return nil
}

// ready returns why the engine's verdicts cannot be trusted now, or nil.
func (d *daemon) ready() error { return errors.Join(d.alive(), d.engine.Health().Err()) }

// run runs all parts until a signal stops them or one of them fails. Processes stop first, while the engine and the API still
// run and show their state.
func (d *daemon) run(ctx context.Context) error {
	d.ended = make(chan struct{})
	defer close(d.ended)
	defer d.processes.closeDir()
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
	parts.Go(func() error { d.beats.Run(serving); return nil })
	parts.Go(func() error { logNameServers(serving, d.log, silentNameServers); return nil })
	d.listeners.run(parts, serving, d.beats)
	d.manager.notify(isReady)
	parts.Go(func() error { d.manager.reportAlive(serving, d.alive); return nil })
	parts.Go(func() error { return d.saved.run(serving, d.engine) })
	parts.Go(func() error { d.processes.endSurvivors(running, d.restarts.Driver); return nil })
	parts.Go(func() error { d.processes.endContainers(running, d.restarts.Driver); return nil })
	go d.watch.run(serving, func() { // not part of the group, since its disk may hang
		select {
		case d.jobs <- &job{trigger: byWatch}:
		case <-serving.Done():
		}
	})
	parts.Go(func() error { d.jobs.useFound(serving, d.foundMore); return nil })
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

// runTargets runs instances and the cluster membership until ctx is done. Both then stop at the same time: the processes of
// this host do not wait for an unreachable store, and the lease lasts until the restarts in progress have finished.
func (d *daemon) runTargets(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	var membership sync.WaitGroup
	defer membership.Wait()
	defer end() // also after a panic
	if d.cluster != nil {
		membership.Go(func() { d.cluster.run(ctx) })
	}
	return d.restarts.Run(ctx)
}
