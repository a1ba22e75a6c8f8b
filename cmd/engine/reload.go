package main

import (
	"reflect"

	"github.com/sonde-probe/sonde/config"
)

// reload reads the configuration again. A wrong one is told and changes nothing.
func (d *daemon) reload() {
	loaded, diags := d.flags.load(d.paths)
	logDiagnostics(d.log, diags)
	if diags.HasErrors() {
		errs, _ := diags.Count()
		d.log.Error("configuration refused, the one before stays", "errors", errs)
		return
	}
	d.flags.override(&loaded.Engine)
	changes, err := d.apply(loaded)
	if err != nil {
		d.log.Error("configuration refused", "err", err)
		return
	}
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
