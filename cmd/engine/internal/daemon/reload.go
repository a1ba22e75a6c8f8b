package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/adapter/prom"
	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/adapter/restart/process"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// loader loads the configuration in the background: compiling a plugin takes
// seconds.
type loader struct {
	daemon  *daemon
	done    chan loadResult // capacity 1
	loading bool
	stale   bool // another reload was asked for since loading began
}

// loadResult is a configuration that was loaded for a reload.
type loadResult struct {
	config  *config.Config
	partial bool // config has only what has changed
	diags   config.Diagnostics
	plugins *handlers.Plugins

	rejected *rejection // at the start: config is not that of the files
}

// start starts to load, or marks what is being loaded as stale.
func (l *loader) start(ctx context.Context) {
	l.stale = l.loading
	if l.loading {
		return
	}
	d := l.daemon
	p := handlers.NewPlugins(ctx, handlers.WaitForAll, func(config.Engine) *slog.Logger { return d.log })
	p.Previous, p.Inputs = d.plugins.Load(), &accepted.Inputs{}
	l.loading = true
	d.manager.notify(isReloading)
	previous := d.digest
	go func() {
		loaded, diags := d.flags.load(d.paths, p, previous)
		l.done <- loadResult{config: loaded, partial: previous != nil, diags: diags, plugins: p}
	}()
}

// stopTimeout is how long the end of the program waits for a reload under way. One that
// takes longer is left behind: it may read a pipe.
const stopTimeout = 2 * time.Second

// stop waits for what is being loaded, and discards it.
func (l *loader) stop() {
	if !l.loading {
		return
	}
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case r := <-l.done:
		r.plugins.Release(l.daemon.plugins.Load())
	case <-t.C:
	}
}

// reload applies a configuration that was loaded again. An invalid one is logged and
// changes nothing.
func (d *daemon) reload(r loadResult) {
	current := d.plugins.Load()
	cli.LogDiagnostics(d.log, r.diags)
	reject := func(attrs ...any) {
		r.plugins.Release(current)
		d.lastReload.Store(&prom.Reload{Rejected: true, Accepted: d.reloads().Accepted})
		d.log.Error("configuration rejected, keeping the current one", attrs...)
	}
	if r.diags.HasErrors() {
		errs, _ := r.diags.Count()
		reject("error_count", errs)
		return
	}
	d.flags.override(&r.config.Engine)
	use := d.apply
	if r.partial {
		use = d.change
	}
	changes, err := use(r.config, guard(r.config))
	if err != nil {
		reject(rejectionAttrs(err)...)
		return
	}
	d.lastReload.Store(&prom.Reload{Accepted: time.Now()})
	r.plugins.Previous = nil
	d.plugins.Store(r.plugins)
	current.Release(r.plugins)
	d.keep(r.plugins)
	d.level.Set(r.config.Engine.LogLevel)
	handlers.LimitMemory(r.config.Engine)
	d.logChanges("configuration applied", changes)
	for _, name := range restartRequired(d.settings, r.config.Engine) {
		if name == "state" && d.processes != nil && len(process.RunningIn(d.processes.Path())) > 0 {
			d.log.Warn("engine setting changed while processes with adopt run: stop the engine, move its state file and the directory of its processes, and start it",
				"setting", name, "state", d.settings.State, "processes", handlers.ProcessDir(d.settings.State))
			continue
		}
		d.log.Warn("engine setting changed, restart the engine to apply it", "setting", name)
	}
}

// reloads returns how the last reload ended.
func (d *daemon) reloads() prom.Reload {
	if last := d.lastReload.Load(); last != nil {
		return *last
	}
	return prom.Reload{}
}

// rejectionAttrs returns the attributes of a log line about an error of a configuration that is
// rejected.
func rejectionAttrs(err error) []any {
	attrs := []any{"error", err}
	if guarded := (*guardError)(nil); errors.As(err, &guarded) {
		attrs = append(attrs, "removed", guarded.named(guarded.effect.Removed), "restarted", guarded.named(guarded.effect.Restarted),
			"hint", `if this is meant, set reload_guard = "100%" in the engine block and reload again`)
	}
	return attrs
}

// guardError is the error of a configuration that the reload guard refuses.
type guardError struct {
	effect restart.Effect
	guard  probe.Share
}

// Error implements error.
func (e *guardError) Error() string {
	return fmt.Sprintf("the configuration would %v, more than reload_guard allows (%v)", e.effect, e.guard)
}

// named names some of the targets that the configuration would have removed or restarted.
func (e *guardError) named(targets []string) string {
	slices.Sort(targets)
	return cli.SomeNames(targets)
}

// guard returns the check of a reload: its effect is a *guardError if a configuration
// would remove or restart more targets than it permits itself.
func guard(c *config.Config) func(restart.Effect) error {
	return func(e restart.Effect) error {
		if !e.Exceeds(c.Engine.ReloadGuard) {
			return nil
		}
		return &guardError{e, c.Engine.ReloadGuard}
	}
}

// anyEffect is the check of what may remove and restart all targets: pods whose manifests
// are gone, as for the kubelet.
func anyEffect(restart.Effect) error { return nil }

// refreshPods applies what has changed in the directory of pods.
func (d *daemon) refreshPods() {
	changed, err := d.pods.Refresh(time.Now())
	if err != nil || !changed {
		return // Refresh has logged the error
	}
	changes, err := d.apply(d.config, anyEffect)
	if err != nil {
		d.log.Error("pods rejected, keeping the current pods", "error", err)
		return
	}
	d.logChanges("pods applied", changes)
}

func (d *daemon) logChanges(message string, c engine.Changes) {
	d.log.Info(message, "targets", d.targets, slog.Group("probes", "added", c.Added, "updated", c.Updated,
		"replaced", c.Replaced, "removed", c.Removed, "kept", c.Kept))
	before := d.seriesOmitted
	probes, most := d.engine.Stats().Probes, cmp.Or(d.settings.MetricsMaxProbes, prom.DefaultMaxProbes)
	if d.seriesOmitted = d.api != nil && probes > most; d.seriesOmitted && !before {
		d.log.Warn("/metrics has no series of each probe and target: there are more probes than metrics_max_probes",
			"probes", probes, "metrics_max_probes", most)
	}
}

// changeable are the settings that a reload applies.
var changeable = []string{"log_level", "plugin_cache", "plugin_memory", "allow_empty", "reload_guard"}

// restartRequired returns the settings that differ and cannot change while the engine
// runs.
func restartRequired(before, after config.Engine) (names []string) {
	was, is := reflect.ValueOf(before), reflect.ValueOf(after)
	for i, field := range reflect.VisibleFields(was.Type()) {
		name, _, _ := strings.Cut(cmp.Or(field.Tag.Get("hcl"), "restart_budget"), ",")
		if !slices.Contains(changeable, name) && !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	return names
}
