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

// What asks for a reload.
const (
	byStart   = "start"
	bySignal  = "signal"
	byRequest = "request"
	byWatch   = "watch"
	byPush    = "push"
	byFound   = "discovery"
)

// errStopping is the reply to a request that the engine no longer handles.
var errStopping = errors.New("the engine is stopping")

// job is a configuration to load, and to put into use or to plan that.
type job struct {
	trigger string
	force   bool             // reload_guard is not asked
	plan    bool             // nothing is put into use
	paths   []string         // of a plan; nil: those of the engine
	pushed  *accepted.Inputs // a revision to use; nil: the one in use
	to      chan<- reply     // of capacity 1, to who has asked; nil for what the engine itself asks for, and after the reply
}

// reply is what becomes of a job.
type reply struct {
	reload api.Reload
	plan   api.Plan
	err    error
}

// reply says once what becomes of a job.
func (j *job) reply(r reply) {
	if j.to != nil {
		j.to <- r
		j.to = nil
	}
}

// loader loads configurations in the background, one at a time: compiling a plugin takes seconds.
type loader struct {
	daemon  *daemon
	current *job              // nil: nothing is loaded
	done    <-chan loadResult // what is loaded for it
}

// loadResult is a configuration that was loaded.
type loadResult struct {
	config  *config.Config
	pushed  *accepted.Inputs // the revision that config has; nil for none
	diags   config.Diagnostics
	plugins *handlers.Plugins

	before *config.Config // for a plan: the configuration in use; nil if it is not known

	// Of the start:
	rejected   *rejection // config is not that of the files
	isUnpushed bool       // config lacks the targets that are pushed to the cluster: nothing is
	isBare     bool       // config lacks the targets that are pushed, by --force: it does not replace what was accepted last
}

// shown returns what the asker may see of the diagnostics. Those about a revision go to the store, whose readers need not
// be able to read the engine's own files: its log has them.
func (j *job) shown(diags config.Diagnostics) config.Diagnostics {
	if j.pushed == nil {
		return diags
	}
	return diags.WithoutTexts(isOwn)
}

// isOwn reports whether a file is the engine's own: not of a revision.
func isOwn(file string) bool { return !accepted.IsOfFleet(file) }

// start begins to load what a job asks for.
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

// inUse returns the configuration in use, by its inputs, or nil if it cannot be read. It shares modules with others.
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

// finish ends the present job with its configuration.
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

// refuse ends the present job for who has asked: the engine is stopping. What is being loaded is discarded when it is.
func (l *loader) refuse() {
	if l.current != nil {
		l.current.reply(reply{err: errStopping})
	}
}

// discard releases a configuration that was loaded for an engine that is stopping.
func (l *loader) discard(r loadResult) {
	l.current = nil
	r.plugins.Release(l.daemon.plugins.Load())
}

// stopTimeout is how long the end of the program waits for a reload under way. One that
// takes longer is left behind: it may read a pipe.
const stopTimeout = 2 * time.Second

// stop refuses the present job, waits for what is being loaded, and discards it.
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

// jobQueue is what the goroutine that handles signals takes jobs from.
type jobQueue chan *job

// request asks for a job, and waits for its end, or until ctx is done. The goroutine takes the next job when it has ended
// the present one, whose files may be older than those that are asked for.
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

// requestReload is api.Config.Reload.
func (d *daemon) requestReload(ctx context.Context, force bool) (api.Reload, error) {
	r := d.jobs.request(ctx, &job{trigger: byRequest, force: force})
	return r.reload, r.err
}

// requestPlan is api.Config.Plan.
func (d *daemon) requestPlan(ctx context.Context, paths []string) (api.Plan, error) {
	r := d.jobs.request(ctx, &job{plan: true, paths: paths})
	return r.plan, r.err
}
