package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/restart"
)

// driver watches and restarts a unit.
type driver struct {
	buses  *Buses
	socket string
	name   string
	log    *slog.Logger

	failed func(error)
	notice func(restart.Notice)
}

func newDriver(buses *Buses, socket, name string, log *slog.Logger) *driver {
	return &driver{buses: buses, socket: socket, name: name, log: log, failed: func(error) {}, notice: func(restart.Notice) {}}
}

var (
	_ restart.External  = (*driver)(nil)
	_ restart.Resumer   = (*driver)(nil)
	_ restart.Notifying = (*driver)(nil)
)

// SetFailed implements restart.External.
func (d *driver) SetFailed(failed func(error)) { d.failed = failed }

// SetNotice implements restart.Notifying.
func (d *driver) SetNotice(set func(restart.Notice)) { d.notice = set }

// Resume implements restart.Resumer. It ignores the ID: Run resumes whichever invocation is running.
func (d *driver) Resume(string) bool { return true }

// Run implements restart.Driver.
func (d *driver) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) restart.Exit {
	r := &run{driver: d, changed: wake.New(), end: end}
	var release func()
	r.bus, r.follower, release = d.buses.follow(d.socket, d.name, r.changed.Set)
	defer release()
	u, err := r.await(ctx)
	if err != nil {
		return restart.Exit{Code: -1, Err: err}
	}
	began(restart.Begun{ID: u.InvocationID, Since: u.Since})
	return r.watch(ctx, u)
}

// run is one call of Run.
type run struct {
	*driver
	bus      *bus
	follower *follower
	changed  wake.Signal
	end      <-chan time.Duration // nil once it is closed
	told     restart.Notice
}

func (r *run) tell(n restart.Notice) {
	if n != r.told {
		r.told = n
		r.notice(n)
	}
}

// lostNotice returns a Notice if systemd is unreachable. It returns the zero Notice if systemd is reachable, or not
// connected yet.
func (v view) lostNotice() restart.Notice {
	if v.lost == nil || errors.Is(v.lost, errNotConnected) {
		return restart.Notice{}
	}
	return restart.LostNotice(reasonOf(v.lost), v.lost, v.since)
}

// await waits until the unit runs, and returns it. It starts a failed unit without Restart= when the controller
// requests that, after the back-off.
func (r *run) await(ctx context.Context) (u unit, err error) {
	for {
		v := r.bus.view(r.follower)
		notice := v.lostNotice()
		if v.isKnown && v.lost == nil {
			if v.isRunning() {
				r.tell(restart.Notice{})
				return v.unit, nil
			}
			notice = v.waits()
		}
		if notice.Reason != "" {
			r.tell(notice)
		}
		select {
		case <-ctx.Done():
			return u, context.Cause(ctx)
		case <-r.changed:
		case _, open := <-r.end:
			if !open {
				r.end = nil
				continue
			}
			if v.lost != nil || v.ActiveState != "failed" || v.restartsItself() || v.wasStopped() {
				continue
			}
			if err := r.bus.start(ctx, r.name); err != nil {
				r.log.Warn("unit not started again", "unit", r.name, "error", err)
			}
		}
	}
}

// watch returns when the instance of a unit has ended.
func (r *run) watch(ctx context.Context, u unit) restart.Exit {
	acting, cancel := context.WithCancel(ctx)
	var done chan error // of the action in progress; nil if there is none
	defer func() {
		cancel()
		if done != nil {
			<-done
		}
	}()
	asked := notAsked
	for {
		v := r.bus.view(r.follower)
		r.tell(v.lostNotice())
		switch {
		case v.lost != nil:
		case v.InvocationID != u.InvocationID || !v.isRunning():
			return ended(u, v.unit, asked != notAsked)
		case asked == isAsked && v.Job:
			asked = isAtWork
		case asked == isAtWork && !v.Job:
			asked = notAsked
			r.failed(fmt.Errorf("the job of unit %s was cancelled", r.name))
		}
		select {
		case <-ctx.Done():
			return restart.Exit{Code: -1, Err: context.Cause(ctx)}
		case <-r.changed:
		case _, open := <-r.end:
			switch {
			case !open:
				r.end = nil
			case done == nil && !v.Job: // may be repeated: systemd may have dropped a request, as during daemon-reexec
				done = make(chan error, 1)
				go func() { done <- r.bus.restart(acting, r.name, u.InvocationID) }()
			}
		case err := <-done:
			done = nil
			switch {
			case err == nil:
				asked = isAsked
			case errors.Is(err, errChanged):
				r.log.Info("unit not restarted", "unit", r.name, "instance", u.InvocationID, "error", err)
				r.bus.mark(func(f *follower) bool { return f == r.follower }) // the signal has not arrived yet
			case ctx.Err() == nil:
				r.log.Warn("unit not restarted", "unit", r.name, "instance", u.InvocationID, "error", err)
				r.failed(fmt.Errorf("unit %s: %w", r.name, err))
			}
		}
	}
}

// asked is the progress of a restart.
type asked uint8

const (
	notAsked asked = iota
	isAsked        // systemd has accepted the job
	isAtWork       // its job was observed
)

// ended returns the exit of the instance u of a unit whose current state is now. If now is another instance, its count
// of automatic restarts tells whether u crashed.
func ended(u, now unit, isAsked bool) restart.Exit {
	if now.InvocationID != u.InvocationID {
		return restart.Exit{Code: -1, ByOthers: !isAsked && now.Restarts <= u.Restarts}
	}
	e := now.exit()
	e.ByOthers = !isAsked && now.wasStopped()
	return e
}
