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

// driver follows a unit.
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

// Resume implements restart.Resumer: whichever instance runs is the one to go on with.
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

// lostNotice says that nothing is known now. The zero Notice: it is, or nothing has been known so far.
func (v view) lostNotice() restart.Notice {
	if v.lost == nil || errors.Is(v.lost, errNotConnected) {
		return restart.Notice{}
	}
	return restart.LostNotice(reasonOf(v.lost), v.lost, v.since)
}

// await returns the unit once it runs. A unit that has failed, and does not restart itself, is started when the back-off is over.
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
	var done chan error // of the act that goes on
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
			case done == nil && !v.Job: // also again: systemd may have done nothing, as while it was executed again
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
				r.bus.mark(func(f *follower) bool { return f == r.follower }) // signals have not told yet
			case ctx.Err() == nil:
				r.log.Warn("unit not restarted", "unit", r.name, "instance", u.InvocationID, "error", err)
				r.failed(fmt.Errorf("unit %s: %w", r.name, err))
			}
		}
	}
}

// asked is how far a restart is.
type asked uint8

const (
	notAsked asked = iota
	isAsked        // systemd has accepted the job
	isAtWork       // its job was seen
)

// ended returns how the instance u of a unit has ended, which is now another one or none. If it is another one, its count of
// automatic restarts tells whether u has crashed.
func ended(u, now unit, isAsked bool) restart.Exit {
	if now.InvocationID != u.InvocationID {
		return restart.Exit{Code: -1, ByOthers: !isAsked && now.Restarts <= u.Restarts}
	}
	e := now.exit()
	e.ByOthers = !isAsked && now.wasStopped()
	return e
}
