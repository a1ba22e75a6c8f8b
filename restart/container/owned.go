package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// The labels of containers that engines create.
const (
	labelEngine   = "sonde.engine"   // the engine that created it
	labelTarget   = "sonde.target"   // the target that it runs
	labelRevision = "sonde.revision" // a hash of its configuration
)

// owned is a driver that creates one container per instance. The containers outlive the engine however it ends, and the
// next engine finds them by their labels. The driver costs one goroutine, in addition to the watch of its runtime.
type owned struct {
	runtimes *Runtimes
	socket   string
	engine   string
	target   string
	revision string
	spec     docker.Spec
	pull     string
	ports    map[string]uint16
	log      *slog.Logger

	notice func(restart.Notice)
	stop   atomic.Pointer[restart.StopSettings]
	resume string // ID of the instance that an earlier engine reported

	vacant time.Time // when a new container may replace the latest one
}

// newOwned returns a driver that creates containers for a target of an engine.
func newOwned(r *Runtimes, socket, engine, target string, spec docker.Spec, pull string, ports map[string]uint16, log *slog.Logger) *owned {
	text, _ := json.Marshal(spec) // never fails
	sum := sha256.Sum256(text)
	return &owned{
		runtimes: r, socket: socket, engine: engine, target: target, revision: hex.EncodeToString(sum[:8]), spec: spec, pull: pull,
		ports: ports, log: log, notice: func(restart.Notice) {},
	}
}

var (
	_ restart.Outliving = (*owned)(nil)
	_ restart.Resumer   = (*owned)(nil)
	_ restart.Notifying = (*owned)(nil)
)

// Outlives returns true: containers keep running without the engine.
func (d *owned) Outlives() bool { return true }

// SetStop implements restart.Outliving.
func (d *owned) SetStop(s restart.StopSettings) { d.stop.Store(&s) }

// SetNotice implements restart.Notifying.
func (d *owned) SetNotice(set func(restart.Notice)) { d.notice = set }

// Resume makes the next Run resume an instance of an earlier engine, if its container exists.
func (d *owned) Resume(id string) bool {
	d.resume = id
	return true
}

// selector returns the selector of the target's containers.
func (d *owned) selector() docker.Selector {
	return docker.Selector{Labels: map[string]string{labelEngine: d.engine, labelTarget: d.target}}
}

// errEnded is the error of a Run that was asked to terminate its instance before it had started a container.
var errEnded = errors.New("asked to end before the container was started")

// Run takes over the running container of the target, or creates one, and returns when it has exited.
func (d *owned) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	rt, release := d.runtimes.use(d.socket)
	defer release()
	r := &ownedRun{owned: d, rt: rt, changed: wake.New(), end: end}
	r.follower = rt.watch.Follow(d.selector(), r.changed.Set)
	defer r.follower.Close()
	c, err := r.obtain(ctx)
	if err != nil {
		// Any other reason means that the runtime is unavailable.
		if reason := reasonOf(err); reason != probe.ReasonRuntimeFailed && reason != probe.ReasonRuntimeNoContainer {
			err = &restart.ShortageError{Reason: reason, Err: err}
		}
		return restart.Exit{Code: -1, Err: err}
	}
	began(rt.begun(ctx, c, d.ports))
	return r.watch(ctx, c)
}

// ownedRun is one Run.
type ownedRun struct {
	*owned
	rt       *runtime
	follower *docker.Follower
	changed  wake.Signal
	end      <-chan time.Duration
	told     restart.Notice
}

// tell reports a notice if it differs from the previous one.
func (r *ownedRun) tell(n restart.Notice) {
	if n != r.told {
		r.told = n
		r.notice(n)
	}
}

// obtain returns the container of the next instance.
func (r *ownedRun) obtain(ctx context.Context) (docker.Container, error) {
	v, err := r.listed(ctx)
	if err != nil {
		return docker.Container{}, err
	}
	resume := r.resume
	r.resume = ""
	var found docker.Container
	for _, s := range v.Containers {
		c := s.Container
		isCurrent := c.Labels[labelRevision] == r.revision
		if isCurrent && found.ID == "" && (c.State.Running || resume == instanceID(c)) {
			found = c // also if it has exited in the meantime, so that its exit is reported
			continue
		}
		running, err := r.discard(ctx, c)
		if err != nil {
			return docker.Container{}, err
		}
		if running.ID != "" && isCurrent && found.ID == "" {
			r.rt.watch.Add(running)
			found = running
		}
	}
	if found.ID != "" {
		return found, nil
	}
	return r.make(ctx)
}

// discard removes a container. If somebody has started it again in the meantime, discard keeps it and returns it.
func (r *ownedRun) discard(ctx context.Context, c docker.Container) (running docker.Container, err error) {
	if c.State.Running {
		r.log.Info("ending container of another configuration", "container", c.Name)
		if err := r.rt.Stop(ctx, c.ID, r.grace()); err != nil {
			return running, err
		}
	}
	if err = r.rt.Remove(ctx, c.ID, false); err == nil {
		return running, nil
	}
	if now, inspected := r.rt.Inspect(ctx, c.ID); inspected == nil && now.State.Running {
		return now, nil
	}
	return running, err
}

// listed waits until the containers of the target are known, and returns them. After an exit it also waits until a new
// container may replace the latest one.
func (r *ownedRun) listed(ctx context.Context) (v docker.View, err error) {
	for {
		v = r.follower.View()
		r.tell(noticeOf(v))
		var restarted <-chan time.Time
		if v.Lost == nil && v.IsListed {
			wait := time.Until(r.vacant)
			if wait <= 0 || slices.ContainsFunc(v.Containers, func(s docker.Seen) bool { return s.State.Running }) {
				return v, nil
			}
			restarted = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return v, context.Cause(ctx)
		case <-restarted:
		case <-r.changed:
		case _, open := <-r.end:
			if open {
				return v, errEnded
			}
			r.end = nil
		}
	}
}

// How long a container may take to be started again by somebody else, as by docker restart, before a new one replaces
// it.
const (
	restartTimeout = 2 * time.Second // after the runtime has stopped it, according to Docker's events
	settleTimeout  = time.Second     // after it has exited; with Podman, perhaps for the same reason. A kubelet sees an exit as late
)

func (d *owned) grace() time.Duration {
	if s := d.stop.Load(); s != nil {
		return s.GracePeriod
	}
	return 0
}

// make creates and starts a container, after pulling its image if that is configured.
func (r *ownedRun) make(ctx context.Context) (c docker.Container, err error) {
	ctx, cancel := r.untilAsked(ctx)
	defer cancel()
	defer func() {
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, errEnded) {
			err = cause
		}
	}()
	if err := r.fetch(ctx); err != nil {
		return c, err
	}
	spec := r.spec
	spec.Labels = map[string]string{labelEngine: r.engine, labelTarget: r.target, labelRevision: r.revision}
	id, err := r.rt.Create(ctx, r.name(), spec)
	if err != nil {
		return c, fmt.Errorf("container not created: %w", err)
	}
	if err := r.rt.Start(ctx, id); err != nil {
		r.remove(id)
		return c, fmt.Errorf("container not started: %w", err)
	}
	if c, err = r.rt.Inspect(ctx, id); err != nil {
		r.remove(id)
		return c, err
	}
	r.rt.watch.Add(c)
	return c, nil
}

// untilAsked returns a context that is done when ctx is, or when Run is asked to terminate the instance.
func (r *ownedRun) untilAsked(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		select {
		case <-ctx.Done():
		case _, open := <-r.end:
			if open {
				cancel(errEnded)
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-asked
	}
}

// fetch pulls the image, if that is configured.
func (r *ownedRun) fetch(ctx context.Context) error {
	if r.pull == "never" {
		return nil // a missing image is then an error of Create
	}
	has, err := r.rt.HasImage(ctx, r.spec.Image)
	if err != nil || has && r.pull != "always" {
		return err
	}
	r.tell(restart.Notice{Reason: probe.ReasonStarting, Detail: "pulling image " + r.spec.Image})
	defer r.tell(restart.Notice{})
	return r.rt.Pull(ctx, r.spec.Image)
}

// name returns the name of the container: the target's name, with a suffix that distinguishes engines.
func (d *owned) name() string {
	sum := sha256.Sum256([]byte(d.engine + "\x00" + d.target))
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, d.target)
	return "sonde-" + clean + "-" + hex.EncodeToString(sum[:3])
}

// endTimeout is the timeout for removing a container when the engine stops, or the container is no longer wanted.
const endTimeout = 5 * time.Second

// remove removes a container. An error is only logged: the next Run removes the container.
func (d *ownedRun) remove(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := d.rt.Remove(ctx, id, true); err != nil {
		d.log.Warn("container not removed", "container", id, "error", err)
	}
}

// watch returns when the instance has exited, or is released.
func (r *ownedRun) watch(ctx context.Context, c docker.Container) restart.Exit {
	ending, cancel := context.WithCancel(context.Background())
	defer cancel()
	var t *termination
	for {
		v := r.follower.View()
		r.tell(noticeOf(v))
		if x, has := ended(c, v.Containers); has && v.Lost == nil {
			e := r.rt.exitOf(c, x)
			if e.ByOthers = t == nil && x.Killed; e.ByOthers {
				r.vacant = time.Now().Add(restartTimeout)
			} else if t == nil {
				r.vacant = time.Now().Add(settleTimeout)
			}
			if t != nil {
				t.end()
				r.remove(c.ID)
			}
			return e
		}
		select {
		case <-ctx.Done():
			t.end()
			if errors.Is(context.Cause(ctx), restart.ErrReleased) {
				return restart.Exit{Code: -1, Err: restart.ErrReleased}
			}
			r.remove(c.ID) // this kills it
			return restart.Exit{Code: -1, Err: context.Cause(ctx)}
		case <-r.changed:
		case grace, open := <-r.end:
			switch {
			case !open:
				r.end = nil
			case t == nil:
				t = r.terminate(ending, c, grace)
			default:
				t.shorten(grace)
			}
		case err := <-t.finished():
			t = nil
			if errors.Is(err, docker.ErrChanged) {
				r.rt.watch.Recheck(c.ID)
			} else if err != nil {
				r.log.Warn("container not terminated", "container", c.Name, "instance", instanceID(c), "error", err)
			}
		}
	}
}

// MadeAt returns the socket of the runtime at which a driver creates containers, or false if it creates none.
func MadeAt(d restart.Driver) (socket string, ok bool) {
	o, ok := d.(*owned)
	if ok {
		socket = o.socket
	}
	return socket, ok
}

// RemoveOthers terminates and removes the containers that an engine has created at a socket for targets that were
// removed from its configuration while it was not running. It returns those targets. If the runtime does not respond,
// or refuses, it returns an error; the caller should then call it again.
func (r *Runtimes) RemoveOthers(ctx context.Context, socket, engine string, has func(target string) bool) (removed []string, err error) {
	rt := r.get(socket)
	list, err := rt.List(ctx, map[string]string{labelEngine: engine})
	if err != nil {
		return nil, err
	}
	for _, l := range list {
		target := l.Labels[labelTarget]
		if target == "" || l.Labels[labelEngine] != engine || has(target) {
			continue
		}
		if failed := errors.Join(rt.Stop(ctx, l.ID, restart.DefaultTerminationGracePeriod), rt.Remove(ctx, l.ID, true)); failed != nil {
			err = errors.Join(err, fmt.Errorf("container of the removed target %s could not be removed: %w", target, failed))
			continue
		}
		removed = append(removed, target)
	}
	return removed, err
}
