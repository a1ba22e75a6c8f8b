package main

import (
	"context"
	"encoding"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sonde-probe/sonde/config"
)

// runFlags are the flags of sonde run. Those that are given come before the
// engine block.
type runFlags struct {
	inputs

	listen      string
	listenGiven bool
	level       config.LogLevel
	format      config.LogFormat
	addressFile string
	pods        podFlags
}

func runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [CONFIG...]",
		Short: "Run the probes of a configuration, and restart what fails",
		Long: "Run reads files, or directories of *.hcl and *.hcl.json files; default " + defaultConfig + ".\n\n" +
			"SIGHUP makes it read them again: what has not changed does not notice, and a configuration with\n" +
			"mistakes changes nothing. SIGTERM and SIGINT end its processes by their grace periods, then the\n" +
			"engine, with exit code 0. A second one ends all of them now, with 128 and the signal's number.",
		Example: "  sonde run\n  sonde run /etc/sonde --listen 127.0.0.1:9000 --log-format json",
		RunE: func(c *cobra.Command, paths []string) error {
			f.listenGiven = c.Flags().Changed("listen")
			return run(c, &f, paths)
		},
	}
	f.inputs.flags(c)
	c.Flags().StringVar(&f.listen, "listen", "", "`address` of the status page, the API and /metrics, or \"\" for none")
	c.Flags().Var(&textFlag{to: &f.level, kind: "level"}, "log-level", "debug, info, warn or error")
	c.Flags().Var(&textFlag{to: &f.format, kind: "format"}, "log-format", "auto (text on a terminal, JSON otherwise), text or json")
	c.Flags().StringVar(&f.addressFile, "address-file", "", "write the address that is listened on to a `file`")
	f.pods.flags(c)
	return c
}

// run runs the engine until a signal ends it.
func run(c *cobra.Command, f *runFlags, paths []string) (err error) {
	level := &slog.LevelVar{}
	logger := f.logger(c.ErrOrStderr(), level)
	plugins := newPlugins(c.Context(), waitNever, logger)
	loaded, diags := f.load(paths, plugins)
	if diags.HasErrors() {
		return f.refuse(c, diags)
	}
	log := logger(loaded.Engine)
	f.override(&loaded.Engine)
	slog.SetDefault(log) // for what logs without being asked
	logDiagnostics(log, diags)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	d := &daemon{flags: f, paths: paths, level: level, log: log, signals: signals}
	if d.pods, err = f.pods.open(log); err != nil {
		return err
	}
	d.plugins.Store(plugins)
	defer func() { d.plugins.Load().end() }()
	if err := d.prepare(loaded); err != nil {
		return err
	}
	return d.run(context.WithoutCancel(c.Context()))
}

// logger returns a function that returns the log, as the first engine block that it is
// asked with has it.
func (f *runFlags) logger(w io.Writer, level *slog.LevelVar) func(config.Engine) *slog.Logger {
	var log *slog.Logger
	return func(e config.Engine) *slog.Logger {
		if log == nil {
			f.override(&e)
			level.Set(logLevel(e.LogLevel))
			log = newLogger(w, e.LogFormat, level)
		}
		return log
	}
}

func (f *runFlags) refuse(c *cobra.Command, diags config.Diagnostics) error {
	if err := tell(c, diags); err != nil {
		return err
	}
	return told(exitFailed)
}

// override puts flags before the engine block.
func (f *runFlags) override(e *config.Engine) {
	if f.listenGiven {
		e.Listen = f.listen
	}
	if f.level != "" {
		e.LogLevel = f.level
	}
	if f.format != "" {
		e.LogFormat = f.format
	}
}

// textFlag is a flag that takes a word from a list.
type textFlag struct {
	to   encoding.TextUnmarshaler
	kind string
	text string
}

// Set refuses other words.
func (t *textFlag) Set(s string) error {
	t.text = s
	return t.to.UnmarshalText([]byte(s))
}

// String returns the word.
func (t *textFlag) String() string { return t.text }

// Type returns what stands for the word in the help.
func (t *textFlag) Type() string { return t.kind }
