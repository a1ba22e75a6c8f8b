package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
)

// place returns where the inputs of the configuration in use are kept, or nil if nothing is: without
// a configuration file.
func (f *flags) place(paths []string) *accepted.Place {
	if f.isOnlyPods(paths) {
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil
	}
	line := append([]string{dir, f.pods.Path}, f.inputs.Given()...)
	for _, path := range handlers.OrDefault(paths) {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
			line = append(line, fmt.Sprint(os.Getpid())) // another process has another pipe of this name
		}
		line = append(line, path)
	}
	return accepted.PlaceOf(line)
}

// starter loads the configuration that an engine starts with.
type starter struct {
	*flags
	paths   []string
	place   *accepted.Place // set by load
	plugins func() *handlers.Plugins

	openStore OpenStore // of a cluster block
}

// load returns the configuration of the files. If the engine that used the same files is to go on,
// it returns the configuration that this engine had accepted where a reload would be rejected.
func (s *starter) load() loadResult {
	s.place = s.flags.place(s.paths)
	r := s.read()
	if s.force {
		return r
	}
	kept, err := s.place.Find(isLeft)
	if err != nil {
		r = r.warn("the configuration that was accepted last cannot be read: %v", err)
	}
	if kept == nil {
		return checkUnpushed(r)
	}
	if !r.diags.HasErrors() && kept.Has(r.plugins.Inputs) {
		return r
	}
	before := loadResult{plugins: s.plugins(), pushed: kept.Pushed(), isUnkept: true}
	before.plugins.Previous, before.plugins.Inputs = r.plugins, kept.Inputs
	before.config, before.diags = s.parse(kept.Inputs.Sources, kept.Inputs.VarFiles, before.plugins)
	before.plugins.Previous = nil
	if before.diags.HasErrors() {
		before.plugins.Release(r.plugins)
		return checkUnpushed(r.warn("the configuration that was accepted at %v cannot be used any more", kept.Accepted.Format(time.RFC3339)))
	}
	before.rejected = &rejection{accepted: kept.Accepted, diags: r.diags}
	if !r.diags.HasErrors() {
		if before.rejected.err = guard(r.config)(startEffect(before.config, r.config, running(kept.Header))); r.isUnpushed && len(before.config.Targets) > 0 {
			before.rejected.err = errUnpushed
		}
		if before.rejected.err == nil {
			before.plugins.Release(r.plugins)
			return r
		}
	}
	r.plugins.Release(before.plugins)
	return before
}

// checkUnpushed has it be an error that nothing is pushed: there is a state, and no earlier configuration to go on with.
func checkUnpushed(r loadResult) loadResult {
	if r.isUnpushed {
		r.diags = append(r.diags, config.Diagnostic{Summary: errUnpushed.Error()}, needsPushed(r.config.Engine.State))
	}
	return r
}

// warn adds a warning to the diagnostics.
func (r loadResult) warn(format string, args ...any) loadResult {
	r.diags = append(r.diags, config.Diagnostic{Severity: config.Warning, Summary: fmt.Sprintf(format, args...)})
	return r
}

// isLeft reports whether an engine that starts goes on with what an earlier one has left: its state,
// unless that is too old, or its processes.
func isLeft(h accepted.Header) bool {
	info, err := os.Stat(h.State) // it is written every ten seconds
	return err == nil && time.Since(info.ModTime()) <= h.MaxAge || len(running(h)) > 0
}

// running returns the targets whose processes have outlived the engine.
func running(h accepted.Header) []string {
	if h.Processes == "" {
		return nil
	}
	return process.RunningIn(h.Processes)
}

// startEffect returns what an engine would do to targets if it started with another configuration
// than the one before. Only what runs can be restarted.
func startEffect(before, after *config.Config, running []string) restart.Effect {
	e := restart.Effect{Units: len(before.Targets), Run: len(running)}
	for name, t := range before.Targets {
		now, kept := after.Targets[name]
		runs := slices.Contains(running, name)
		switch {
		case !kept:
			e.Removed = append(e.Removed, name)
		case runs && !sameDriver(t, now):
			e.Restarted = append(e.Restarted, name)
		default:
			continue
		}
		if runs {
			e.Ended++
		}
	}
	return e
}

// sameDriver reports whether an instance of a target goes on in the other configuration.
func sameDriver(a, b config.Target) bool {
	before, err := driverRevision(a)
	after, afterErr := driverRevision(b)
	return err == nil && afterErr == nil && before == after
}

// driverRevision identifies how a target is started.
func driverRevision(t config.Target) (string, error) {
	text, err := json.Marshal([]any{fmt.Sprintf("%T", t.Driver), t.Driver})
	return string(text), err
}

// rejection is why an engine does not start with the configuration of the files.
type rejection struct {
	accepted time.Time // when the configuration was accepted that it starts with
	diags    config.Diagnostics
	err      error // if there is no error in diags
}

// logRejection logs that the files were rejected at the start, and counts it as a rejected reload.
func (d *daemon) logRejection(r *rejection) {
	if r == nil {
		return
	}
	cli.LogDiagnostics(d.log, r.diags)
	attrs, err := rejectionAttrs(r.err), r.err
	if errs, _ := r.diags.Count(); errs > 0 {
		err = errorsOf(r.diags, errs)
		attrs = []any{"error_count", errs, "hint", "correct it and reload; sonde run --force starts without the accepted configuration"}
	}
	d.lastReload.Store(&api.Reload{Accepted: r.accepted})
	d.rejected(&job{trigger: byStart}, r.diags, err)
	d.log.Error("configuration rejected, going on with the one that was accepted before the start", append(attrs, "accepted", r.accepted)...)
}

// keep keeps the inputs of the configuration that was put into use, for the next start.
func (d *daemon) keep(p *handlers.Plugins) {
	in := p.Inputs
	p.Inputs = nil
	if in == nil {
		return
	}
	h := accepted.Header{Accepted: d.reloads().Accepted, Processes: d.processes.dir.Path()}
	if d.pushed != nil {
		h.Revision = d.pushed.Ref
	}
	err := error(nil)
	if d.settings.State != "" {
		h.MaxAge = maxStateAge(d.settings)
		h.State, err = filepath.Abs(d.settings.State)
	}
	if err == nil {
		err = d.place.Keep(h, in)
	}
	if err != nil {
		d.log.Warn("accepted configuration not kept: the next start has only the files", "error", err)
	}
}

// closePlace leaves the inputs to the next engine, which goes on only where there is a state.
func (d *daemon) closePlace() {
	if d.settings.State == "" {
		d.place.Remove()
	}
	d.place.Close()
}
