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

// daemon is a running sonde: an engine, the controller that restarts its targets,
// and the server that shows them.
type daemon struct {
	flags     *flags
	paths     []string
	version   string
	openStore OpenStore
	level     *slog.LevelVar
	log       *slog.Logger
	queue     *cli.LogQueue // that log writes to
	signals   *signals
	manager   serviceManager

	settings config.Engine // those in use
	parts
	listeners listeners

	// The configuration in use:
	config        *config.Config // without the pods; nil without pods
	blocks        *config.Config // what blockChanges compares; nil before the first
	count         int            // of the targets, with the pods
	plugins       atomic.Pointer[handlers.Plugins]
	pushed        *accepted.Inputs // the revision of what is pushed to the cluster; nil for none
	inputs        *accepted.Inputs // what it was read from, which is not changed; nil for none
	keptFile      *keptFile        // where they are kept for the next start; nil without state
	seriesOmitted bool             // /metrics has no series of each probe, which was logged

	lastReload atomic.Pointer[api.Reload] // nil until the first configuration is applied
	watch      fileWatch
	foundMore  wake.Signal   // the finder has found something else
	jobs       jobQueue      // for handleSignals
	ended      chan struct{} // closed when run returns
}

// goThreads is Go's own limit of threads, at which it ends a program (see
// debug.SetMaxThreads). Each command that runs needs a thread beside them.
const goThreads = 10_000

// prepare makes all parts, opens the listener and applies the configuration. It
// starts no process.
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

// makeParts makes all parts, which know those that are made before them.
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

// makeRestarts makes the controller of restarts.
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

// budgetOf returns the restart budget of an engine whose configuration may have none. A kubelet has none: there a Deployment
// bounds the pods that are away by maxUnavailable.
func budgetOf(configured restart.Budget, c probe.Compatibility) restart.Budget {
	if c == probe.Kubelet {
		return configured
	}
	return cmp.Or(configured, restart.DefaultBudget)
}

// makeFollowers makes the parts that follow the targets.
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

// openState opens the state file, if one is configured, and finds the processes that the
// previous engine has left running.
func (d *daemon) openState() error {
	if d.settings.State == "" {
		return nil
	}
	if _, err := os.Stat(d.settings.State); err != nil {
		// Before a file is created that the engine would miss which has the processes.
		if err := d.processes.openDir(""); err != nil {
			return err
		}
	}
	if err := d.saved.open(d.settings.State, maxStateAge(d.settings), &d.parts); err != nil {
		return err
	}
	return d.processes.takeOver()
}

// recorded notes that the engine records something else about a target. A history is urgent: nothing else has its last
// transition if the engine is killed, and the next one finds the target as it was before.
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

// notified notes that the notifiers remember something else. What receivers know of a group, or of a target that engines
// share, is also kept for the engine that has it next. What was told about a group is urgent: no history has it. A cursor
// is not: what lies behind an old one is told again.
func (d *daemon) notified(key string) {
	subject, isNotified := notify.NotifiedSubject(key)
	if isNotified && d.cluster != nil {
		d.cluster.markTold(subject)
	}
	d.saved.mark(keyNotify+key, isNotified && subject.Kind == notify.KindGroup)
}

// close closes what prepare has opened.
func (d *daemon) close() (err error) {
	err = errors.Join(d.listeners.close(), d.saved.close())
	d.processes.closeDir()
	if d.cluster != nil {
		err = errors.Join(err, d.cluster.store.Close())
	}
	return err
}

// mayExist reports whether a target has a driver now, or may become one of this engine.
func (d *daemon) mayExist(target string) bool {
	return d.targets.isConfigured(target) || d.targets.sharing.mayOwn(target)
}

// addSecrets has values replaced in outputs. Those of an earlier configuration stay known.
func (d *daemon) addSecrets(values []string) {
	if !d.queue.Secrets.Add(values) {
		d.log.Warn("not all sensitive values are replaced in outputs: there are too many", "limit", redact.MaxValues, "limit_bytes", redact.MaxText)
	}
}

// floor is the restart.DisruptionBudget and the fleet.Floor of an engine: its groups, which are made after the controller.
type floor struct{ *group.Groups }

// maxLoopDelay is how late the engine's loop may be before the engine hangs, to /healthz and to the service
// manager. A reload of a million probes keeps it from running for seconds.
const maxLoopDelay = 15 * time.Second

// alive returns why the engine does not make attempts, or nil.
func (d *daemon) alive() error {
	if !d.targets.runs.Load() {
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
	go d.watch.run(serving, func() { // the end does not wait for it, since a disk may hang
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

// runTargets runs instances, and is a member of the cluster, until ctx is done. Then both end at the same time: the
// processes of this host do not wait for a store that is away, and the lease lasts until the restarts that are being
// made have ended.
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
