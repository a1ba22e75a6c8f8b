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

// attached is a driver for a container that somebody else has created. It is a restart.External: it restarts the
// container when a probe fails. If the container has no restart policy and has exited on its own, the driver starts it
// again when the controller requests that. A container that somebody stopped is left alone. The driver costs one
// goroutine, in addition to the watch of its runtime.
type attached struct {
	runtimes *Runtimes
	socket   string
	selector docker.Selector
	ports    map[string]uint16
	log      *slog.Logger

	failed func(error)
	notice func(restart.Notice)
	resume string // ID of the instance that an earlier engine reported
	due    string // ID of a container that its runtime should start again: see startDue
	dueAt  time.Time
	pause  time.Duration // between two attempts to start it

	crashed string // ID of the container whose latest instance exited on its own
	stopped string // ID of a container that somebody stopped
}

// newAttached returns a driver for the container that s selects.
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

// Resume makes the next Run resume an instance of an earlier engine, if it is still running.
func (d *attached) Resume(id string) bool {
	d.resume = id
	return true
}

// Run waits until the container runs, watches this instance, and returns when it has exited.
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

// await waits until the container runs, and returns it.
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

// startCrashed starts the container after it has exited on its own, unless its restart policy leaves that to the
// runtime.
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

// choose returns the running container, or the reason why there is none.
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

// what describes the selector, for messages.
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

// watch returns when the instance has exited, or ctx is done. It terminates the instance on request.
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
			_ = act.settle() // the container keeps running, or its runtime restarts it
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
				act.isDone = true // the event of the exit is still to come
				continue
			case errors.Is(err, docker.ErrChanged):
				rt.watch.Recheck(c.ID) // the event has not arrived yet
			default:
				d.log.Warn("container not restarted", "container", c.Name, "instance", instanceID(c), "error", err)
				d.failed(fmt.Errorf("container %s: %w", c.Name, err))
			}
			act = nil
		}
	}
}

// ended returns the exit of the instance. If the runtime is restarting it on request, ended waits for the end of that
// restart first.
func (d *attached) ended(rt *runtime, c docker.Container, x docker.Exit, a *act) restart.Exit {
	how := a.manner()
	e := rt.exitOf(c, x)
	d.crashed, d.stopped = "", ""
	switch {
	case how != notAsked:
	// A zero StartedAt means that it was removed, or started again unobserved.
	case x.Killed, x.StartedAt.IsZero(), !c.Restarts() && looksStopped(x):
		e.ByOthers, d.stopped = true, c.ID
	default:
		d.crashed = c.ID
	}
	if err := a.settle(); how != notAsked && (how == bySignal || err != nil) {
		// Its own policy starts it again. The policy on-failure does not after exit status 0.
		d.due, d.dueAt = c.ID, time.Now().Add(policyTimeout)
		if c.Policy == "on-failure" && x.Code == 0 {
			d.dueAt = time.Now()
		}
	}
	return e
}

// looksStopped reports whether a container has exited in the way a stopped one does. Podman has no event for that.
func looksStopped(x docker.Exit) bool {
	return !x.OOMKilled && (x.Code == 0 || x.Code == 128+int(syscall.SIGTERM) || x.Code == 128+int(syscall.SIGKILL))
}

const (
	policyTimeout = 3 * time.Second // for a runtime to begin to start a container again by its own policy
	maxPause      = time.Minute     // between two attempts to start a container
)

// untilDue returns a channel that fires when the runtime should have started the container again.
func (d *attached) untilDue() <-chan time.Time {
	if d.due == "" {
		return nil
	}
	return time.After(time.Until(d.dueAt))
}

// startDue starts a container that this driver terminated and that its runtime has not started again despite its
// restart policy: on-failure does not apply to exit status 0, nor after too many attempts.
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
