package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/restart/process"
)

// starter loads the configuration at the start of an engine.
type starter struct {
	*flags
	paths   []string
	plugins func() *handlers.Plugins

	openStore OpenStore // of a cluster block

	found map[string]discover.Elements // by the previous engine

	state string         // the state file according to the files; empty for none, or if the files are too broken to tell
	kept  *accepted.Kept // the configuration kept beside state; nil for none
}

// findKept reads the last accepted configuration. Its path follows from the configuration of the files, even if that has
// errors.
func (s *starter) findKept(r loadResult) loadResult {
	if r.config == nil || r.config.Engine.State == "" {
		return r
	}
	var err error
	s.state = r.config.Engine.State
	if s.kept, err = accepted.Read(accepted.File(s.state)); err != nil {
		r = r.warn("cannot read the last accepted configuration: %v", err)
	}
	return r
}

// load returns the configuration of the files. If this engine resumes the state of a previous one, and a reload of the files
// would be rejected, load returns the configuration that the previous engine had accepted.
func (s *starter) load() loadResult {
	r := s.read()
	if s.force {
		return r
	}
	kept := s.kept
	if kept == nil || !isLeft(s.state, kept.MaxAge) {
		return checkUnpushed(r)
	}
	if !r.diags.HasErrors() && kept.Inputs.Equal(r.plugins.Inputs) {
		return r
	}
	before := loadResult{plugins: s.plugins(), pushed: kept.Pushed()}
	before.plugins.Previous, before.plugins.Inputs = r.plugins, kept.Inputs
	before.config, before.diags = s.parse(kept.Inputs.Sources, kept.Inputs.VarFiles, before.plugins)
	before.plugins.Previous = nil
	if before.diags.HasErrors() {
		before.plugins.Release(r.plugins)
		return checkUnpushed(r.warn("the configuration accepted at %v can no longer be used", kept.Accepted.Format(time.RFC3339)))
	}
	before.rejected = &rejection{accepted: kept.Accepted, diags: r.diags}
	if !r.diags.HasErrors() {
		if before.rejected.err = reloadGuard(r.config)(startEffect(before.config, r.config, process.RunningIn(handlers.ProcessDir(s.state)))); r.isUnpushed && len(before.config.Targets) > 0 {
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

// checkUnpushed adds an error if the fleet has no configuration yet but a state file exists: there is no earlier configuration
// to continue with.
func checkUnpushed(r loadResult) loadResult {
	if r.isUnpushed {
		r.diags = append(r.diags, config.Diagnostic{Summary: errUnpushed.Error()}, needsPushed(r.config.Engine.State))
	}
	return r
}

// warn adds a warning to the diagnostics.
func (r loadResult) warn(format string, args ...any) loadResult {
	r.diags = append(r.diags, config.Diagnostic{IsWarning: true, Summary: fmt.Sprintf(format, args...)})
	return r
}

// isLeft reports whether an earlier engine left anything to resume: a state that is not too old, or running processes.
func isLeft(state string, maxAge time.Duration) bool {
	info, err := os.Stat(state) // the state file is written every ten seconds
	return err == nil && time.Since(info.ModTime()) <= maxAge || len(process.RunningIn(handlers.ProcessDir(state))) > 0
}

// startEffect returns the effect on targets of starting with the configuration after instead of before. Only running targets
// can be restarted.
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

// sameDriver reports whether an instance of a target continues to run when configuration a is replaced by b.
func sameDriver(a, b config.Target) bool {
	before, err := driverRevision(a)
	after, afterErr := driverRevision(b)
	return err == nil && afterErr == nil && before == after
}

// driverRevision returns a string that identifies how a target is started.
func driverRevision(t config.Target) (string, error) {
	text, err := json.Marshal([]any{fmt.Sprintf("%T", t.Driver), t.Driver})
	return string(text), err
}

// rejection is the reason why an engine does not start with the configuration of the files.
type rejection struct {
	accepted time.Time // when the configuration in use was accepted
	diags    config.Diagnostics
	err      error // set if diags has no error
}

// logRejection logs that the files were rejected at the start, and records that as a rejected reload.
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
	d.log.Error("configuration rejected, continuing with the one accepted before the start", append(attrs, "accepted", r.accepted)...)
}
