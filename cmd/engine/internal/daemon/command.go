// Package daemon implements sonde run: an engine, the processes and restarts that it controls, and its API.
//
//	command.go  the command and its flags
//	daemon.go   assembles and runs the parts
//	start.go    loads the configuration at the start
//	kept.go     keeps the configuration in use for the next start
//	listen.go   listeners of the API, of beats and of the control socket
//	pushed.go   the configuration that is pushed to the engines of a cluster
//	loader.go   jobs: reloads requested by signals and API requests, one at a time
//	apply.go    puts a configuration into use: plans it, checks the reload guard, and commits or discards it
//	reload.go   the result of a reload, of the configuration or of pods
//	parts.go    the parts that a configuration changes
//	plan.go     previews a reload
//	watch.go    detects changed files
//	signals.go  catches signals, and the loop that handles them
//	targets.go  the targets part: their probes and units
//	saved.go    the subjects in the state file
//	processes.go the drivers of targets, and processes left running by the previous engine
//	containers.go containers created by this engine
//	operate.go  operations on targets: stop, start, restart, pause
//	notifiers.go notices sent to receivers, shared between engines and shown in the API
//	maintenance.go scheduled maintenances
//	cluster.go  the targets that engines share
//	servicemanager.go notifies systemd of the state of the engine
//	notify.go   sonde notify: a command whose probes decide its notifications to systemd
//	nameservers.go logs name servers that do not respond
package daemon

import (
	"context"
	"io"
	stdlog "log"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/cmd/engine/internal/manifests"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/restart/container"
)

// flags are the flags of sonde run. Flags that are set override the engine block.
type flags struct {
	inputs handlers.Inputs

	listen      *string
	level       string
	format      string
	addressFile string
	clusterName string
	force       bool
	pods        manifests.Flags
}

// Command returns the command sonde run. The version is shown in /metrics. If openStore is nil, a cluster block is an error.
func Command(version string, openStore OpenStore) *cobra.Command {
	var f flags
	f.inputs.NoCluster = openStore == nil
	c := &cobra.Command{
		Use:   "run [CONFIG...]",
		Short: "Run the probes of a configuration, and restart targets that fail",
		Long: "Run reads files, or directories of *.hcl and *.hcl.json files; default " + handlers.DefaultConfig + ".\n\n" +
			"SIGHUP reloads them: probes and processes that have not changed go on as they are, and a\n" +
			"configuration with errors is rejected. So is one that would remove or restart more than half of ten\n" +
			"targets or more, unless its engine block says reload_guard = \"100%\". SIGTERM and SIGINT stop all processes within their grace\n" +
			"periods, then the engine, with exit code 0. A second signal kills them, and the exit code is 128\n" +
			"plus the signal's number. SIGQUIT ends the engine at once, with the stacks of its goroutines in the\n" +
			"log. SIGPIPE, SIGUSR1 and SIGUSR2 have no effect.\n\n" +
			"An engine that is started again, by hand or by a service manager, keeps to the same rules: where a\n" +
			"reload would be rejected it goes on with the configuration that was accepted last, which it keeps beside its\n" +
			"state file, if that is not too old, or processes have outlived it. --force starts it with the files or not\n" +
			"at all.\n\n" +
			"Run notifies systemd when it is ready, reloads and stops, and that it is alive: with WatchdogSec in its unit, systemd\n" +
			"restarts an engine that hangs. Elsewhere let a liveness check read /healthz.",
		Example: "  sonde run\n  sonde run /etc/sonde --listen 127.0.0.1:9000 --log-format json\n" +
			"  sonde run --compose compose.yaml",
		RunE: func(c *cobra.Command, paths []string) error { return run(c, &f, paths, version, openStore) },
	}
	f.inputs.Register(c)
	f.inputs.RegisterCompose(c)
	c.Flags().Func("listen", "`address` of the status page, the API and /metrics, or \"\" for none", func(s string) error { f.listen = &s; return nil })
	cli.WordVar(c.Flags(), &f.level, "log-level", "", "", "lowest `level` to log: debug, info, warn or error", "debug", "info", "warn", "error")
	cli.WordVar(c.Flags(), &f.format, "log-format", "", "", "`format` of the log: auto (text on a terminal, JSON otherwise), text or json", "auto", "text", "json")
	c.Flags().StringVar(&f.addressFile, "address-file", "", "write the address of the listener to a `file`")
	if openStore != nil {
		c.Flags().StringVar(&f.clusterName, "cluster-name", "", "`name` of this engine in its cluster, instead of name in the cluster block")
	}
	c.Flags().BoolVar(&f.force, "force", false, "start with the files or not at all, not with the configuration that was accepted last")
	f.pods.Register(c)
	return c
}

// flushTimeout is how long the program waits at exit for the reader of its log.
const flushTimeout = time.Second

// run runs the engine until a signal stops it.
func run(c *cobra.Command, f *flags, paths []string, version string, openStore OpenStore) (err error) {
	signals := catchSignals()
	queue := cli.NewLogQueue(c.ErrOrStderr())
	defer queue.Close(flushTimeout)
	signals.exitOnQuit(queue)
	level := &slog.LevelVar{}
	logger := f.logger(queue, level)
	f.inputs.Beats, f.inputs.Runtimes = beatprobe.NewRegistry(), new(container.Runtimes)
	progress := handlers.StartProgress(c)
	defer progress.Stop()
	start := &starter{flags: f, paths: paths, openStore: openStore, plugins: func() *handlers.Plugins {
		p := handlers.NewPlugins(c.Context(), handlers.WaitForNone, logger)
		p.Inputs, p.Progress = &accepted.Inputs{}, progress
		return p
	}}
	first := background(start.load)
	var loaded loadResult
	select {
	case <-signals.stop: // a pipe as configuration may never reach its end
		return nil
	case loaded = <-first:
	}
	if loaded.diags.HasErrors() {
		progress.Stop()
		signals.release() // so that signals end the program even if its standard error is not read
		return cli.ShowDiagnostics(c, loaded.diags, cli.ExitFailed)
	}
	log := logger(loaded.config.Engine)
	f.override(&loaded.config.Engine)
	slog.SetDefault(log)         // for packages without a logger of their own
	stdlog.SetOutput(io.Discard) // net/http logs data there that a server sent on an idle connection
	cli.LogDiagnostics(log, loaded.diags)
	d := &daemon{parts: parts{beats: f.inputs.Beats}, flags: f, paths: paths, version: version, openStore: openStore, level: level, log: log, queue: queue, signals: signals, pushed: loaded.pushed, jobs: make(chan *job)}
	if d.manager, err = openServiceManager(); err != nil {
		log.Warn("the service manager is not notified", "error", err)
	}
	d.plugins.Store(loaded.plugins)
	defer func() { d.plugins.Load().Close() }()
	progress.Step("starting, and taking over the state")
	isStopped, err := d.awaitPrepared(loaded.config)
	if progress.Stop(); isStopped || err != nil {
		return err
	}
	d.logRejection(loaded.rejected)
	d.watch = fileWatch{inputs: &f.inputs, paths: paths}
	d.watch.use(loaded.config.Engine.Watch, loaded.plugins.Inputs.OfEngine())
	stopKeeping := d.startKeeping()
	defer stopKeeping()
	if !loaded.isBare {
		d.keep(loaded.plugins)
	}
	return d.run(context.WithoutCancel(c.Context()))
}

// background calls f, which may hang on a disk, in a goroutine and returns a channel for its result.
func background[T any](f func() T) <-chan T {
	result := make(chan T, 1)
	go func() { result <- f() }()
	return result
}

// slowStart is the interval of the log line that the engine has not started yet.
const slowStart = 10 * time.Second

// awaitPrepared calls prepare. A stop signal returns immediately, even if prepare hangs on a disk.
func (d *daemon) awaitPrepared(c *config.Config) (isStopped bool, err error) {
	prepared := background(func() error { return d.prepare(c) })
	for {
		select {
		case s := <-d.signals.stop:
			d.log.Info("stopped before the engine has started", "signal", s.String())
			return true, nil
		case err := <-prepared:
			return false, err
		case <-time.After(slowStart):
			d.log.Warn("the engine has not started yet: its configuration is large, or the disk of its state file or pods does not respond")
		}
	}
}

// load reads the configuration files and parses them together with a pushed revision and the discovered elements. With a
// directory of pods, configuration files are optional.
func (f *flags) load(paths []string, pushed *accepted.Inputs, found map[string]discover.Elements, p *handlers.Plugins) (*config.Config, config.Diagnostics) {
	p.Inputs = pushed.Clone()
	p.Inputs.Discovered = found
	if f.isOnlyPods(paths) {
		return f.parse(nil, nil, p)
	}
	sources, files, diags := f.inputs.Read(paths)
	if diags.HasErrors() {
		return nil, diags
	}
	loaded, more := f.parse(slices.Concat(sources, p.Inputs.Sources), files, p)
	return loaded, append(diags, more...)
}

// parse parses configuration sources and variable files whose contents have already been read.
func (f *flags) parse(sources, files []config.Source, p *handlers.Plugins) (*config.Config, config.Diagnostics) {
	f.inputs.AllowEmpty = f.pods.Path != ""
	loaded, diags := f.inputs.Parse(sources, files, p)
	if diags.HasErrors() || f.pods.Path == "" {
		return loaded, diags
	}
	if err := f.pods.LoadGRPC(loaded.Engine, p); err != nil {
		diags = append(diags, config.Diagnostic{Summary: "grpc probes of pods cannot be made: " + err.Error()})
	}
	return loaded, diags
}

// isOnlyPods reports whether there is no configuration file.
func (f *flags) isOnlyPods(paths []string) bool {
	return f.pods.Path != "" && len(paths) == 0 && !f.inputs.HasCompose()
}

// logger returns a function that returns the log. The engine block of the first call sets its format and level.
func (f *flags) logger(q *cli.LogQueue, level *slog.LevelVar) func(config.Engine) *slog.Logger {
	var log *slog.Logger
	return func(e config.Engine) *slog.Logger {
		if log == nil {
			f.override(&e)
			level.Set(e.LogLevel)
			log = q.Logger(e.LogFormat, level)
		}
		return log
	}
}

// override replaces settings of the engine block by the flags that are set.
func (f *flags) override(e *config.Engine) {
	if f.listen != nil {
		e.Listen = *f.listen
	}
	if f.level != "" {
		_ = e.LogLevel.UnmarshalText([]byte(f.level)) // the flag allows no other words
	}
	if f.format != "" {
		e.LogFormat = f.format
	}
}
