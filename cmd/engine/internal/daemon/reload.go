package daemon

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/adapter/prom"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
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
}

// start starts to load, or marks what is being loaded as stale.
func (l *loader) start(ctx context.Context) {
	l.stale = l.loading
	if l.loading {
		return
	}
	d := l.daemon
	p := handlers.NewPlugins(ctx, handlers.WaitForAll, func(config.Engine) *slog.Logger { return d.log })
	p.Previous = d.plugins.Load()
	l.loading = true
	previous := d.digest
	go func() {
		loaded, diags := d.flags.load(d.paths, p, previous)
		l.done <- loadResult{loaded, previous != nil, diags, p}
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
	if r.diags.HasErrors() {
		r.plugins.Release(current)
		errs, _ := r.diags.Count()
		d.log.Error("configuration rejected, keeping the current one", "error_count", errs)
		return
	}
	d.flags.override(&r.config.Engine)
	use := d.apply
	if r.partial {
		use = d.change
	}
	changes, err := use(r.config)
	if err != nil {
		r.plugins.Release(current)
		d.log.Error("configuration rejected, keeping the current one", "error", err)
		return
	}
	r.plugins.Previous = nil
	d.plugins.Store(r.plugins)
	current.Release(r.plugins)
	d.level.Set(r.config.Engine.LogLevel)
	handlers.LimitMemory(r.config.Engine)
	d.logChanges("configuration applied", changes)
	for _, name := range restartRequired(d.settings, r.config.Engine) {
		d.log.Warn("engine setting changed, restart the engine to apply it", "setting", name)
	}
}

// refreshPods applies what has changed in the directory of pods.
func (d *daemon) refreshPods() {
	changed, err := d.pods.Refresh(time.Now())
	if err != nil || !changed {
		return // Refresh has logged the error
	}
	changes, err := d.apply(d.config)
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

// restartRequired returns the settings that differ and cannot change while the engine
// runs: all but three.
func restartRequired(before, after config.Engine) (names []string) {
	was, is := reflect.ValueOf(before), reflect.ValueOf(after)
	for i, field := range reflect.VisibleFields(was.Type()) {
		name, _, _ := strings.Cut(cmp.Or(field.Tag.Get("hcl"), "restart_budget"), ",")
		if name != "log_level" && name != "plugin_cache" && name != "plugin_memory" && !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	return names
}
