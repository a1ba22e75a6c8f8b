package main

import (
	"context"
	"log/slog"
	"reflect"

	"github.com/sonde-probe/sonde/config"
)

// reading reads the configuration again while everything goes on: compiling a plugin
// takes seconds.
type reading struct {
	daemon *daemon
	done   chan reread
	busy   bool
	again  bool // what is being read is out of date already
}

// reread is a configuration that was read again.
type reread struct {
	loaded  *config.Config
	diags   config.Diagnostics
	plugins *plugins
}

// begin begins to read, now or as soon as what is being read has been.
func (r *reading) begin(ctx context.Context) {
	r.again = r.busy
	if r.busy {
		return
	}
	d := r.daemon
	p := newPlugins(ctx, waitForAll, func(config.Engine) *slog.Logger { return d.log })
	p.before = d.plugins.Load()
	r.busy = true
	go func() {
		loaded, diags := d.flags.load(d.paths, p)
		r.done <- reread{loaded, diags, p}
	}()
}

// next takes note that a configuration was read, and begins with another one if it was
// asked for meanwhile.
func (r *reading) next(ctx context.Context) {
	if r.busy = false; r.again {
		r.begin(ctx)
	}
}

// stop waits for what is being read.
func (r *reading) stop() {
	if r.busy {
		(<-r.done).plugins.leave(r.daemon.plugins.Load())
	}
}

// reload makes a configuration that was read again the one in use. A wrong one is told
// and changes nothing.
func (d *daemon) reload(r reread) {
	before := d.plugins.Load()
	logDiagnostics(d.log, r.diags)
	if r.diags.HasErrors() {
		r.plugins.leave(before)
		errs, _ := r.diags.Count()
		d.log.Error("configuration refused, the one before stays", "errors", errs)
		return
	}
	loaded := r.loaded
	d.flags.override(&loaded.Engine)
	changes, err := d.apply(loaded)
	if err != nil {
		r.plugins.leave(before)
		d.log.Error("configuration refused", "err", err)
		return
	}
	r.plugins.before = nil
	d.plugins.Store(r.plugins)
	before.leave(r.plugins)
	d.level.Set(logLevel(loaded.Engine.LogLevel))
	d.log.Info("configuration applied", "targets", len(loaded.Targets)+len(d.pods.targets()), "added", changes.Added, "adjusted", changes.Adjusted,
		"replaced", changes.Replaced, "removed", changes.Removed, "kept", changes.Kept)
	for _, name := range fixed(d.settings, loaded.Engine) {
		d.log.Warn("this setting of the engine block needs another start", "setting", name)
	}
}

// fixed returns the settings that differ and cannot change while the engine runs.
func fixed(was, is config.Engine) []string {
	var names []string
	for _, setting := range []struct {
		name    string
		was, is any
	}{
		{"listen", was.Listen, is.Listen},
		{"concurrency", was.Concurrency, is.Concurrency},
		{"compatibility", was.Compatibility, is.Compatibility},
		{"restart_budget", was.RestartBudget, is.RestartBudget},
		{"token_file", was.TokenFile, is.TokenFile},
		{"tls", was.TLS, is.TLS},
		{"log_format", was.LogFormat, is.LogFormat},
	} {
		if !reflect.DeepEqual(setting.was, setting.is) {
			names = append(names, setting.name)
		}
	}
	return names
}
