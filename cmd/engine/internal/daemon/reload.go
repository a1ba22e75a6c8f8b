package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/cmd/engine/internal/manifests"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart/process"
)

// reload applies the configuration that was loaded for a job, and returns the result. An invalid configuration is logged and
// changes nothing.
func (d *daemon) reload(j *job, r loadResult) api.Reload {
	current := d.plugins.Load()
	cli.LogDiagnostics(d.log, r.diags)
	d.watch.use(d.watch.isOn(), r.plugins.Inputs.OfEngine())
	if errs, _ := r.diags.Count(); errs > 0 {
		r.plugins.Release(current)
		d.log.Error("configuration rejected, keeping the current one", "error_count", errs, "trigger", j.trigger)
		return d.rejected(j, r.diags, errorsOf(r.diags, errs))
	}
	d.flags.override(&r.config.Engine)
	check := reloadGuard(r.config)
	if j.force {
		check = anyEffect
	}
	isStart := j.pushed != nil && d.pushed == nil // the first revision of an engine without one
	if !isStart {
		name := "the reload"
		if j.pushed != nil {
			name = fmt.Sprintf("the push of revision %d", j.pushed.Revision.Number)
		}
		check = brakedBy(d.restarts, d.targets, name, j.force, check)
	}
	changed, err := d.apply(r.config, check)
	if err != nil {
		r.plugins.Release(current)
		d.log.Error("configuration rejected, keeping the current one", append(rejectionAttrs(err), "trigger", j.trigger)...)
		return d.rejected(j, r.diags, err)
	}
	if j.pushed == nil {
		r = r.warnOfRetry(d.cluster.refusal())
	}
	r.plugins.Previous = nil
	d.plugins.Store(r.plugins)
	current.Release(r.plugins)
	d.pushed = r.pushed
	done := d.accepted(j, changed, r.config.Engine, r.diags)
	d.watch.use(r.config.Engine.Watch, r.plugins.Inputs.OfEngine())
	d.keep(r.plugins)
	d.level.Set(r.config.Engine.LogLevel)
	handlers.LimitMemory(r.config.Engine)
	d.logChanges("configuration applied", changed.Changes, "trigger", j.trigger)
	if j.pushed == nil && d.cluster != nil && d.cluster.follower != nil {
		d.cluster.follower.Again(j.force) // the reload may have fixed the cause of a refusal
	}
	for _, name := range done.Settings {
		if name == "state" && len(process.RunningIn(d.processes.dir.Path())) > 0 {
			d.log.Warn("engine setting changed while processes with adopt run: stop the engine, move its state file, and start it",
				"setting", name, "state", d.settings.State)
			continue
		}
		d.log.Warn("engine setting changed, restart the engine to apply it", "setting", name)
	}
	return done
}

// accepted records that a configuration was put into use, with its engine block and warnings, and returns the result of the
// reload.
func (d *daemon) accepted(j *job, c applied, e config.Engine, diags config.Diagnostics) api.Reload {
	now := time.Now()
	changes := api.Changes(c.Changes)
	done := api.Reload{
		At: now, Accepted: now, Applied: true, Trigger: j.trigger, Forced: j.force, Targets: d.count, Probes: &changes, Problems: problems(diags),
		Instances: &c.instances, Blocks: c.blocks, Settings: restartRequired(d.settings, e),
	}
	d.lastReload.Store(&done)
	return done
}

// maxPlaces is the maximum number of places that an error names.
const maxPlaces = 3

// errorsOf returns the error of a configuration with n errors, which are in diags. It names only places, since its readers may
// not be allowed to read the files.
func errorsOf(diags config.Diagnostics, n int) error {
	var places []string
	for _, one := range diags {
		if place := one.Range.String(); !one.IsWarning && place != "" && len(places) < maxPlaces {
			places = append(places, place)
		}
	}
	if len(places) == 0 {
		return fmt.Errorf("the configuration has %s", cli.Plural(n, "error"))
	}
	more := ""
	if n > len(places) {
		more = ", …"
	}
	return fmt.Errorf("the configuration has %s: %s%s", cli.Plural(n, "error"), strings.Join(places, ", "), more)
}

// rejected records that a configuration was rejected, and returns the result of the reload.
func (d *daemon) rejected(j *job, diags config.Diagnostics, err error) api.Reload {
	done := api.Reload{
		At: time.Now(), Accepted: d.reloads().Accepted, Trigger: j.trigger, Forced: j.force, Targets: d.count, Problems: problems(diags),
		Error: &api.Error{Status: http.StatusUnprocessableEntity, Message: probe.CleanText(d.queue.Secrets.Text(err.Error()), probe.MaxDetail)},
	}
	var guarded *guardError
	done.Guarded = errors.As(err, &guarded)
	d.lastReload.Store(&done)
	return done
}

// maxProblems bounds Reload.Problems, in bytes.
const maxProblems = 64 << 10

// problems formats diagnostics as text.
func problems(diags config.Diagnostics) string {
	var s strings.Builder
	_ = diags.WriteText(&s, false) // a Builder returns no error
	if text := s.String(); len(text) > maxProblems {
		return strings.ToValidUTF8(text[:maxProblems], "") + "…\n"
	}
	return s.String()
}

// reloads returns the result of the last reload; before the first reload, that of the start.
func (d *daemon) reloads() api.Reload {
	if last := d.lastReload.Load(); last != nil {
		return *last
	}
	return api.Reload{}
}

// rejectionAttrs returns log attributes for a rejected configuration.
func rejectionAttrs(err error) []any {
	attrs := []any{"error", err}
	if guarded := (*guardError)(nil); errors.As(err, &guarded) {
		attrs = append(attrs, "removed", guarded.named(guarded.effect.Removed), "restarted", guarded.named(guarded.effect.Restarted),
			"hint", guardHint)
	}
	return attrs
}

// foundPause is the minimum time between two reloads by discovery.
const foundPause = time.Second

// useFound requests a reload each time more signals new discovery results, until ctx is done.
func (q jobQueue) useFound(ctx context.Context, more wake.Signal) {
	for ctx.Err() == nil {
		select {
		case <-more:
			q.request(ctx, &job{trigger: byFound})
		case <-ctx.Done():
		}
		select {
		case <-time.After(foundPause):
		case <-ctx.Done():
		}
	}
}

// podsRead is the result of reading the directory of pods again.
type podsRead struct {
	dir     *manifests.Dir
	changed bool
}

// readPods reads the directory of pods again. Its disk may hang.
func readPods(dir *manifests.Dir) podsRead {
	changed, err := dir.Refresh(time.Now()) // Refresh has logged the error
	return podsRead{dir, changed && err == nil}
}

// applyPods applies changes in the directory of pods.
func (d *daemon) applyPods(read podsRead) {
	d.targets.pods = read.dir
	if !read.changed {
		return
	}
	done, err := d.apply(d.config, brakedBy(d.restarts, d.targets, "the change of the pods", false, anyEffect))
	if err != nil {
		d.log.Error("pods rejected, keeping the current pods", "error", err)
		return
	}
	d.logChanges("pods applied", done.Changes)
}

func (d *daemon) logChanges(message string, c engine.Changes, attrs ...any) {
	counts := slog.Group("probes", "added", c.Added, "updated", c.Updated, "replaced", c.Replaced, "removed", c.Removed, "kept", c.Kept)
	d.log.Info(message, append([]any{"targets", d.count, counts}, attrs...)...)
	before := d.seriesOmitted
	probes, most := d.engine.Stats().Probes, cmp.Or(d.settings.MetricsMaxProbes, metrics.DefaultMaxProbes)
	if d.seriesOmitted = d.listeners.listener != nil && probes > most; d.seriesOmitted && !before {
		d.log.Warn("/metrics omits the series of single probes and targets: there are more probes than metrics_max_probes",
			"probes", probes, "metrics_max_probes", most)
	}
}

// changeable lists the settings that a reload applies.
var changeable = []string{"log_level", "plugin_cache", "plugin_memory", "allow_empty", "reload_guard", "watch"}

// restartRequired returns the names of changed settings that need a restart of the engine.
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
