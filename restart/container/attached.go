package container

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// attached is a driver of a container that somebody else has made. It is a restart.External: it restarts the container when a
// probe fails. One without a restart policy that has exited on its own is started again when the controller asks for that. One
// that was stopped is left alone. It costs one goroutine, beside the watch of its runtime.
type attached struct {
	runtimes *Runtimes
	socket   string
	selector docker.Selector
	ports    map[string]uint16
	log      *slog.Logger

	failed func(error)
	notice func(restart.Notice)
	resume string // the ID of the instance that an earlier engine has reported
	due    string // the ID of a container that its runtime should start again: see startDue
	dueAt  time.Time
	pause  time.Duration // between two tries to start it

	crashed string // the ID of the container whose latest instance has exited on its own
	stopped string // the ID of one that somebody has stopped
}

// newAttached returns a driver of a container.
func newAttached(r *Runtimes, socket string, s docker.Selector, ports map[string]uint16, log *slog.Logger) *attached {
	return &attached{runtimes: r, socket: socket, selector: s, ports: ports, log: log, failed: func(error) {}, notice: func(restart.Notice) {}}
}

var (
	_ restart.External  = (*attached)(nil)
	_ restart.Resumer   = (*attached)(nil)
	_ restart.Notifying = (*attached)(nil)
)

// SetFailed implements restart.External.
func (d *attached) SetFailed(failed func(error)) { d.failed = failed }

// SetNotice implements restart.Notifying.
func (d *attached) SetNotice(set func(restart.Notice)) { d.notice = set }

// Resume makes the next Run go on with an instance of an earlier engine, if it still runs.
func (d *attached) Resume(id string) bool {
	d.resume = id
	return true
}

// Run follows the container: it waits until it runs, and returns when this instance has exited.
func (d *attached) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	rt, release := d.runtimes.use(d.socket)
	defer release()
	changed := wake.New()
	f := rt.watch.Follow(d.selector, changed.Set)
	defer f.Close()
	c, err := d.await(ctx, rt, f, changed, end)
	if err != nil {
		return restart.Exit{Code: -1, Err: err}
	}
	began(rt.begun(ctx, c, d.ports))
	return d.watch(ctx, rt, c, f, changed, end)
}

// await returns the container when it runs.
func (d *attached) await(ctx context.Context, rt *runtime, f *docker.Follower, changed wake.Signal, end <-chan time.Duration) (c docker.Container, err error) {
	for {
		v := f.View()
		notice := noticeOf(v)
		if notice.Reason == "" && v.IsListed {
			if c, notice = d.choose(v.Containers); notice.Reason == "" {
				d.notice(notice)
				return c, nil
			}
			d.startDue(ctx, rt, v.Containers)
		}
		if notice.Reason != "" {
			d.notice(notice)
		}
		select {
		case <-ctx.Done():
			return c, context.Cause(ctx)
		case <-changed:
		case <-d.untilDue():
		case _, open := <-end:
			if !open {
				end = nil
				continue
			}
			d.startCrashed(ctx, rt, v.Containers)
		}
	}
}

// startCrashed starts the container after it has exited on its own, unless its runtime does by its own policy.
func (d *attached) startCrashed(ctx context.Context, rt *runtime, seen []docker.Seen) {
	for _, s := range seen {
		if s.ID != d.crashed || s.State.Running || s.Restarts() {
			continue
		}
		if err := rt.Start(ctx, s.ID); err != nil {
			d.log.Warn("container not started again", "container", s.Name, "error", err)
		}
	}
}

// choose returns the container that runs, or why there is none.
func (d *attached) choose(seen []docker.Seen) (docker.Container, restart.Notice) {
	var names []string
	var running docker.Container
	for _, s := range seen {
		if s.State.Running {
			names, running = append(names, s.Name), s.Container
		}
	}
	switch {
	case len(names) == 1:
		return running, restart.Notice{}
	case len(names) > 1:
		return running, restart.Notice{Reason: probe.ReasonRuntimeNoContainer, Detail: fmt.Sprintf("%d running containers have %s: %s; add labels until one has all of them", len(names), d.what(), strings.Join(names[:min(5, len(names))], ", "))}
	case len(seen) == 0:
		return running, restart.Notice{Reason: probe.ReasonRuntimeNoContainer, Detail: "no container has " + d.what()}
	}
	s := seen[len(seen)-1]
	detail := fmt.Sprintf("container %s is %s", s.Name, s.State.Status)
	if s.State.Error != "" {
		detail += ": " + s.State.Error
	} else if s.State.Status == "exited" {
		detail += fmt.Sprintf(" with status %d", s.State.ExitCode)
	}
	switch {
	case s.State.Status == "restarting":
		return running, restart.Notice{Reason: probe.ReasonBackOff, Detail: detail}
	case s.ID == d.stopped:
		return running, restart.Notice{Reason: probe.ReasonRuntimeStop, Detail: detail}
	}
	return running, restart.Notice{Reason: probe.ReasonNotRunning, Detail: detail}
}

// what describes the containers that match.
func (d *attached) what() string {
	if d.selector.Name != "" {
		return fmt.Sprintf("the name or ID %q", d.selector.Name)
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(d.selector.Labels)) {
		labels = append(labels, name+"="+d.selector.Labels[name])
	}
	return "the labels " + strings.Join(labels, ", ")
}

// watch returns when the instance has exited, or ctx is done. It terminates the instance when it is asked to.
func (d *attached) watch(ctx context.Context, rt *runtime, c docker.Container, f *docker.Follower, changed wake.Signal, end <-chan time.Duration) restart.Exit {
	acting, cancel := context.WithCancel(ctx)
	defer cancel()
	var act *act
	notice := restart.Notice{}
	for {
		v := f.View()
		if n := noticeOf(v); n != notice {
			notice = n
			d.notice(n)
		}
		if x, has := ended(c, v.Containers); has && v.Lost == nil {
			return d.ended(rt, c, x, act)
		}
		select {
		case <-ctx.Done():
			cancel()
			_ = act.settle() // the container goes on, or its runtime restarts it
			return restart.Exit{Code: -1, Err: context.Cause(ctx)}
		case <-changed:
		case grace, open := <-end:
			switch {
			case !open:
				end = nil
			case act == nil:
				act = rt.act(acting, c, grace)
			default:
				act.shorten(grace)
			}
		case err := <-act.finished():
			switch {
			case err == nil:
				act.isDone = true // the event of the exit comes later
				continue
			case errors.Is(err, docker.ErrChanged):
				rt.watch.Recheck(c.ID) // events have not told yet
			default:
				d.log.Warn("container not restarted", "container", c.Name, "instance", instanceID(c), "error", err)
				d.failed(fmt.Errorf("container %s: %w", c.Name, err))
			}
			act = nil
		}
	}
}

// ended returns the exit of the instance, after the runtime has restarted it if it was asked to.
func (d *attached) ended(rt *runtime, c docker.Container, x docker.Exit, a *act) restart.Exit {
	how := a.manner()
	e := rt.exitOf(c, x)
	d.crashed, d.stopped = "", ""
	switch {
	case how != notAsked:
	case x.Killed, x.StartedAt.IsZero(), !c.Restarts() && looksStopped(x): // the second was removed, or was started again unseen
		e.ByOthers, d.stopped = true, c.ID
	default:
		d.crashed = c.ID
	}
	if err := a.settle(); how != notAsked && (how == bySignal || err != nil) {
		// Its own policy starts it again. One for failures does not after a planned exit.
		d.due, d.dueAt = c.ID, time.Now().Add(policyTimeout)
		if c.Policy == "on-failure" && x.Code == 0 {
			d.dueAt = time.Now()
		}
	}
	return e
}

// looksStopped reports whether a container has exited as one does that somebody stops. Podman has no event of that.
func looksStopped(x docker.Exit) bool {
	return !x.OOMKilled && (x.Code == 0 || x.Code == 128+int(syscall.SIGTERM) || x.Code == 128+int(syscall.SIGKILL))
}

const (
	policyTimeout = 3 * time.Second // for a runtime to begin to start a container again by its own policy
	maxPause      = time.Minute     // between two tries to start one
)

// untilDue returns a channel that fires when the runtime should have started the container again.
func (d *attached) untilDue() <-chan time.Time {
	if d.due == "" {
		return nil
	}
	return time.After(time.Until(d.dueAt))
}

// startDue starts a container that was terminated here, and which its runtime does not start again, although it has a policy:
// one for failures does not after exit status 0, or after too many.
func (d *attached) startDue(ctx context.Context, rt *runtime, seen []docker.Seen) {
	if d.due == "" || time.Now().Before(d.dueAt) {
		return
	}
	id := d.due
	d.due = ""
	for _, s := range seen {
		if s.ID != id || s.State.Running || s.State.Status == "restarting" {
			continue
		}
		if err := rt.Start(ctx, id); err != nil {
			d.pause = min(max(2*d.pause, policyTimeout), maxPause)
			d.log.Warn("container not started again, retrying", "container", s.Name, "error", err, "retry_in", d.pause)
			d.due, d.dueAt = id, time.Now().Add(d.pause)
			return
		}
		d.pause = 0
	}
}
