package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// guarded is a driver that terminates an instance only within an act: once, by the owner of the target's shard. An act
// lasts until the driver has exited or has reported that it failed. If the lease expires, the driver is stopped.
type guarded struct {
	fleet  *Fleet
	target string
	driver restart.External
	failed func(reason error) // see SetFailed
}

var (
	errTerminated = errors.New("another engine has terminated the instance")
	errPanicked   = errors.New("the driver has panicked")
)

// checkDriver returns an error if a fleet cannot use a driver.
func checkDriver(d restart.Driver) error {
	_, isExternal := d.(restart.External)
	if _, isNear := d.(restart.Notifying); d != nil && (!isExternal || isNear) {
		return errors.New("its instances run on the host of one engine; apply it to that engine, not to the fleet")
	}
	return nil
}

// Resume implements restart.Resumer.
func (g *guarded) Resume(id string) bool {
	r, ok := g.driver.(restart.Resumer)
	return ok && r.Resume(id)
}

// SetFailed implements restart.External. It also calls failed if the request to terminate was withheld.
func (g *guarded) SetFailed(failed func(reason error)) { g.failed = failed }

// run is one call of guarded.Run.
type run struct {
	*guarded
	stop     context.CancelCauseFunc // stops the driver
	end      <-chan time.Duration    // requests to terminate the instance
	allowed  chan time.Duration      // requests passed on to the driver, within acts; unbuffered: a completed send was received
	failures chan error              // capacity 1; why the driver could not terminate the instance
	exited   chan struct{}           // closed when the driver has exited, or panicked
	exit     restart.Exit            // valid once exited is closed
}

// Run implements restart.Driver. If another engine has terminated the instance, Run returns, whether the driver notices
// or not. If the driver was stopped because its act was canceled, the error is a restart.ErrInterrupted.
func (g *guarded) Run(ctx context.Context, began func(restart.Begun), end <-chan time.Duration) (exit restart.Exit) {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &run{
		guarded: g, stop: stop, end: end,
		allowed: make(chan time.Duration), failures: make(chan error, 1), exited: make(chan struct{}),
	}
	g.driver.SetFailed(r.onFailed)
	started := make(chan string, 1)
	var asking sync.WaitGroup
	asking.Go(func() {
		select {
		case id := <-started:
			r.ask(ctx, id)
		case <-r.exited:
		}
	})
	defer asking.Wait()
	exit = restart.Exit{Code: -1, Err: errPanicked}
	defer func() {
		r.exit = exit
		close(r.exited)
	}()
	exit = g.driver.Run(running, func(b restart.Begun) { started <- probe.InstanceID(b.ID); began(b) }, r.allowed)
	var withheld *restart.WithheldError
	switch cause := context.Cause(running); {
	case exit.Err == nil || running.Err() == nil || ctx.Err() != nil:
	case errors.Is(cause, errTerminated):
		exit = restart.Exit{Output: errTerminated.Error()}
	case errors.As(cause, &withheld):
		exit.Err = withheld
	default:
		exit.Err = fmt.Errorf("%w: %w", restart.ErrInterrupted, cause)
	}
	return exit
}

// onFailed is the callback that the driver calls on failure.
func (r *run) onFailed(reason error) {
	select {
	case r.failures <- reason:
	default: // an earlier reason has not been read yet
	}
}

// failure is the error of a driver that could not terminate its instance, which keeps running.
type failure struct{ error }

// ask does an act for each request to terminate the instance, until the driver has exited. A request that this engine
// must not execute now is dropped, since the controller repeats it.
func (r *run) ask(ctx context.Context, id string) {
	order := coord.Order{Target: r.target, Instance: id, IsDone: r.hasHelped, Before: func(acting context.Context, owned coord.Condition) error {
		return r.fleet.floors.reserve(acting, r.target, id, owned)
	}}
	log := r.fleet.config.Logger.With("target", r.target, "instance", id)
	for {
		var grace time.Duration
		select {
		case grace = <-r.end:
		case <-r.exited:
			return
		}
		err := r.fleet.config.Coordinator.Acts().Do(ctx, order, func(acting context.Context) error { return r.terminate(acting, grace) })
		var failed failure
		var withheld *restart.WithheldError
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, coord.ErrDone):
			r.stop(errTerminated)
		case errors.As(err, &withheld):
			r.stop(withheld)
		case errors.As(err, &failed):
			r.failed(failed.error)
		case r.hasExited():
			if r.exit.Err == nil {
				log.Warn("restart not recorded: the next owner may repeat it", "error", err)
			}
		default:
			log.Warn("restart withheld", "error", err)
			if err = fmt.Errorf("restart withheld: %w", err); r.isByProbe() {
				r.stop(err) // the restart is made as soon as this engine may act: see restart.ErrInterrupted
			} else {
				r.failed(err)
			}
		}
	}
}

// isByProbe reports whether the restart is made because a probe fails. An operator who has requested a restart gets it,
// or an error that says why not.
func (r *run) isByProbe() bool {
	st, _ := r.fleet.config.Engine.Target(r.target)
	return st.Instance.Reason == probe.ReasonEnding
}

// hasHelped attempts each failing probe to find out whether a restart that an earlier owner began because of them has
// succeeded. These probes are on hold, and have not been attempted since. It returns an error if an attempt has no
// outcome.
func (r *run) hasHelped(acting context.Context) (bool, error) {
	if !r.isByProbe() {
		return false, nil
	}
	st, _ := r.fleet.config.Engine.Target(r.target)
	hasFailed := false
	for i := range st.Probes {
		p := &st.Probes[i]
		if !p.FailsInstance(st.Instance.ID) {
			continue
		}
		hasFailed = true
		switch result := r.attempt(acting, p.ID, st.Instance.Since); result.Outcome {
		case probe.Failure:
			return false, nil
		case probe.Unknown:
			return false, fmt.Errorf("the earlier restart may have succeeded, but the attempt that would show it could not run: %s: %s", result.Reason, result.Detail)
		}
	}
	if hasFailed {
		r.fleet.config.Logger.Info("restart not repeated: an earlier owner began it, and the target is passing", "target", r.target, "instance", st.Instance.ID)
	}
	return hasFailed, nil
}

// attempt makes an attempt at a probe that changes no verdict. For a probe with a quorum it only checks the votes.
func (r *run) attempt(ctx context.Context, id probe.ID, since time.Time) probe.Result {
	p := r.fleet.desired.probe(id)
	if p.Handler == nil {
		return probe.Broken(probe.ReasonOwnership, "the probe was removed")
	}
	p.Target.Name, p.Target.Since = id.Target, since
	return engine.Once(ctx, p)
}

func (r *run) hasExited() bool {
	select {
	case <-r.exited:
		return true
	default:
		return false
	}
}

// overdueAfter is the interval at which an act that is still running is logged: until it finishes, this engine keeps the
// shard and cannot be drained.
const overdueAfter = time.Minute

// terminate sends the driver one request to terminate the instance. It returns when the driver has exited, has failed,
// or was stopped because acting is done. A driver that has not received the request by then is not stopped.
func (r *run) terminate(acting context.Context, grace time.Duration) error {
	select {
	case <-r.failures: // about an earlier request
	default:
	}
	overdue, began := time.NewTicker(overdueAfter), time.Now()
	defer overdue.Stop()
	request, isReceived := r.allowed, false
	for acting.Err() == nil {
		select {
		case request <- grace:
			request, isReceived = nil, true
		case grace = <-r.end: // ignored once the driver has received a request: the driver reports its result
		case reason := <-r.failures:
			return failure{reason}
		case <-r.exited:
			return r.exit.Err
		case <-overdue.C:
			r.fleet.config.Logger.Warn("restart under way: this engine keeps the targets of the shard until the restart ends or fails", "target", r.target, "for", time.Since(began).Round(time.Second))
		case <-acting.Done():
		}
	}
	if !isReceived {
		return context.Cause(acting)
	}
	r.stop(context.Cause(acting))
	<-r.exited
	return r.exit.Err
}
