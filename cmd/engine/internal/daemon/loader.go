package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/adapter/httpapi"
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
)

// errStopping is the reply to a request that the engine no longer handles.
var errStopping = errors.New("the engine is stopping")

// job is a configuration to load, and to put into use.
type job struct {
	trigger string
	force   bool           // reload_guard is not asked
	replies []chan<- reply // each of capacity 1
}

// reply is what becomes of a job.
type reply struct {
	reload httpapi.Reload
	err    error
}

// add makes a job do what another one asks for, too.
func (j *job) add(other *job) {
	j.force = j.force || other.force
	j.replies = append(j.replies, other.replies...)
}

func (j *job) reply(r reply) {
	for _, to := range j.replies {
		to <- r
	}
}

// loader loads configurations in the background, one at a time: compiling a plugin takes seconds.
type loader struct {
	daemon  *daemon
	done    chan loadResult // capacity 1
	current *job            // nil: nothing is loaded
	next    *job            // what was asked for since current began to read files; nil: nothing
}

// loadResult is a configuration that was loaded.
type loadResult struct {
	config  *config.Config
	partial bool // config has only what has changed
	diags   config.Diagnostics
	plugins *handlers.Plugins

	rejected *rejection // at the start: config is not that of the files
}

// ask starts a job, or keeps it for when the present one has ended: what that one reads may be
// older than what is asked for. Jobs that wait are one.
func (l *loader) ask(ctx context.Context, j *job) {
	switch {
	case l.next != nil:
		l.next.add(j)
	case l.current != nil:
		l.next = j
	default:
		l.start(ctx, j)
	}
}

func (l *loader) start(ctx context.Context, j *job) {
	l.current = j
	d := l.daemon
	p := handlers.NewPlugins(ctx, handlers.WaitForAll, func(config.Engine) *slog.Logger { return d.log })
	p.Previous, p.Inputs = d.plugins.Load(), &accepted.Inputs{}
	d.manager.notify(isReloading)
	previous := d.digest
	go func() {
		loaded, diags := d.flags.load(d.paths, p, previous)
		l.done <- loadResult{config: loaded, partial: previous != nil, diags: diags, plugins: p}
	}()
}

// finish ends the present job with its configuration, and starts the next one.
func (l *loader) finish(ctx context.Context, r loadResult) {
	d, j := l.daemon, l.current
	j.reply(reply{reload: d.reload(j, r)})
	d.manager.notify(isReady)
	if l.current = nil; l.next != nil {
		j, l.next = l.next, nil
		l.start(ctx, j)
	}
}

// refuse ends all jobs: the engine is stopping. What is being loaded is discarded when it is.
func (l *loader) refuse() {
	for _, j := range []*job{l.current, l.next} {
		if j != nil {
			j.reply(reply{err: errStopping})
			j.replies = nil
		}
	}
	l.next = nil
}

// discard releases a configuration that was loaded for an engine that is stopping.
func (l *loader) discard(r loadResult) {
	l.current = nil
	r.plugins.Release(l.daemon.plugins.Load())
}

// stopTimeout is how long the end of the program waits for a reload under way. One that
// takes longer is left behind: it may read a pipe.
const stopTimeout = 2 * time.Second

// stop refuses all jobs, waits for what is being loaded, and discards it.
func (l *loader) stop() {
	l.refuse()
	if l.current == nil {
		return
	}
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case r := <-l.done:
		l.discard(r)
	case <-t.C:
	}
}

// request asks the goroutine that handles signals for a reload, and waits for its end, or until
// ctx is done.
func (d *daemon) request(ctx context.Context, j *job) (httpapi.Reload, error) {
	to := make(chan reply, 1)
	j.replies = []chan<- reply{to}
	select {
	case d.jobs <- j:
	case <-ctx.Done():
		return httpapi.Reload{}, ctx.Err()
	}
	select {
	case r := <-to:
		return r.reload, r.err
	case <-ctx.Done():
		return httpapi.Reload{}, ctx.Err()
	}
}

// requestReload is httpapi.Config.Reload.
func (d *daemon) requestReload(ctx context.Context, force bool) (httpapi.Reload, error) {
	return d.request(ctx, &job{trigger: byRequest, force: force})
}
