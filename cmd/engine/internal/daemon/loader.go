package daemon

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
)

// Triggers of a reload.
const (
	byStart   = "start"
	bySignal  = "signal"
	byRequest = "request"
	byWatch   = "watch"
	byPush    = "push"
	byFound   = "discovery"
)

// errStopping is the reply to a request that a stopping engine no longer handles.
var errStopping = errors.New("the engine is stopping")

// job is a configuration to load and then either apply or plan.
type job struct {
	trigger string
	force   bool             // skip reload_guard
	plan    bool             // only plan
	paths   []string         // of a plan; nil for the engine's paths
	pushed  *accepted.Inputs // the revision to use; nil for the one in use
	to      chan<- reply     // of capacity 1; nil if nobody waits, and after the reply
}

// reply is the result of a job.
type reply struct {
	reload api.Reload
	plan   api.Plan
	err    error
}

// reply sends the result of a job to its requester, once.
func (j *job) reply(r reply) {
	if j.to != nil {
		j.to <- r
		j.to = nil
	}
}

// loader loads configurations in the background, one at a time: compiling a plugin takes seconds.
type loader struct {
	daemon  *daemon
	current *job              // nil if no job is loading
	done    <-chan loadResult // the result for current
}

// loadResult is a loaded configuration.
type loadResult struct {
	config  *config.Config
	pushed  *accepted.Inputs // the revision in config; nil for none
	diags   config.Diagnostics
	plugins *handlers.Plugins

	before *config.Config // for a plan: the configuration in use; nil if unknown

	// Only at the start:
	rejected   *rejection // set if config is not that of the files
	isUnpushed bool       // config lacks the pushed targets, since nothing has been pushed
	isBare     bool       // config lacks the pushed targets because of --force: it does not replace the last accepted configuration
}

// shown returns the diagnostics that the requester may see. Diagnostics about a revision go to the store, whose readers may not
// be allowed to read the engine's own files, so texts of those files are removed; the engine's log has them.
func (j *job) shown(diags config.Diagnostics) config.Diagnostics {
	if j.pushed == nil {
		return diags
	}
	return diags.WithoutTexts(isOwn)
}

// isOwn reports whether a file is the engine's own, not part of a revision.
func isOwn(file string) bool { return !accepted.IsOfFleet(file) }

// start begins to load the configuration of a job.
func (l *loader) start(ctx context.Context, j *job) {
	l.current = j
	d := l.daemon
	p := handlers.NewPlugins(ctx, handlers.WaitForAll, func(config.Engine) *slog.Logger { return d.log })
	p.Previous, p.Describe = d.plugins.Load(), j.plan
	pushed, paths, inputs, found := cmp.Or(j.pushed, d.pushed), d.paths, d.inputs, d.finder.Found()
	if j.paths != nil {
		paths = j.paths
	}
	if !j.plan {
		d.manager.notify(isReloading)
	}
	l.done = background(func() loadResult {
		loaded, diags := d.flags.load(paths, pushed, found, p)
		r := loadResult{config: loaded, pushed: pushed, diags: diags, plugins: p}
		if j.plan && !diags.HasErrors() && inputs != nil {
			r.before = d.flags.inUse(inputs.Clone(), p)
		}
		return r
	})
}

// inUse parses the configuration in use from its inputs, or returns nil if that fails. It shares modules with others.
func (f *flags) inUse(in *accepted.Inputs, others *handlers.Plugins) *config.Config {
	p := handlers.NewPlugins(context.Background(), handlers.WaitForNone, handlers.Silent)
	p.Previous, p.Inputs, p.Describe = others.Previous, in, true
	before, diags := f.parse(in.Sources, in.VarFiles, p)
	p.Release(others.Previous)
	if diags.HasErrors() {
		return nil
	}
	return before
}

// finish applies or plans the loaded configuration of the current job and replies.
func (l *loader) finish(r loadResult) {
	d, j := l.daemon, l.current
	shown := j.shown(r.diags)
	if j.plan {
		j.reply(reply{plan: d.planner().plan(r)})
		r.plugins.Release(d.plugins.Load())
	} else {
		done := d.reload(j, r)
		if j.pushed != nil {
			done.Problems = problems(shown)
		}
		j.reply(reply{reload: done})
		d.manager.notify(isReady)
	}
	l.current = nil
}

// refuse replies to the current job that the engine is stopping. Its configuration is discarded once it is loaded.
func (l *loader) refuse() {
	if l.current != nil {
		l.current.reply(reply{err: errStopping})
	}
}

// discard releases a configuration that was loaded while the engine was stopping.
func (l *loader) discard(r loadResult) {
	l.current = nil
	r.plugins.Release(l.daemon.plugins.Load())
}

// stopTimeout is how long the program waits at exit for a reload in progress. A longer one is abandoned: it may be reading a
// pipe.
const stopTimeout = 2 * time.Second

// stop refuses the current job, waits until its configuration is loaded, and discards it.
func (l *loader) stop() {
	l.refuse()
	if l.current == nil {
		return
	}
	select {
	case r := <-l.done:
		l.discard(r)
	case <-time.After(stopTimeout):
	}
}

// jobQueue is the queue of jobs for the goroutine that handles signals.
type jobQueue chan *job

// request enqueues a job and waits for its reply, or until ctx is done. The goroutine finishes its current job first, since
// that job may have read the files before the request.
func (q jobQueue) request(ctx context.Context, j *job) reply {
	to := make(chan reply, 1)
	j.to = to
	select {
	case q <- j:
	case <-ctx.Done():
		return reply{err: ctx.Err()}
	}
	select {
	case r := <-to:
		return r
	case <-ctx.Done():
		return reply{err: ctx.Err()}
	}
}

// requestReload implements api.Config.Reload.
func (d *daemon) requestReload(ctx context.Context, force bool) (api.Reload, error) {
	r := d.jobs.request(ctx, &job{trigger: byRequest, force: force})
	return r.reload, r.err
}

// requestPlan implements api.Config.Plan.
func (d *daemon) requestPlan(ctx context.Context, paths []string) (api.Plan, error) {
	r := d.jobs.request(ctx, &job{plan: true, paths: paths})
	return r.plan, r.err
}
