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

// guarded is a driver that is asked to terminate an instance by an act only: once, by the owner of the
// target's shard. An act lasts until the driver has exited, or has said that it failed; the end of its lease
// ends the driver.
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

// checkDriver returns why a fleet cannot have a driver, or nil.
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

// SetFailed implements restart.External. Failed is also called if the request to terminate was withheld.
func (g *guarded) SetFailed(failed func(reason error)) { g.failed = failed }

// run is one call of guarded.Run.
type run struct {
	*guarded
	stop     context.CancelCauseFunc // ends the driver
	end      <-chan time.Duration    // requests to terminate the instance
	allowed  chan time.Duration      // those that the driver gets, within acts; without capacity: what was sent was received
	failures chan error              // capacity 1: why the driver could not terminate the instance
	exited   chan struct{}           // closed when the driver has exited, or panicked
	exit     restart.Exit            // may be read once exited is closed
}

// Run implements restart.Driver. An instance that another engine has terminated has ended, whether the driver
// notices or not. If the driver was stopped because its act had ended, the error is a restart.ErrInterrupted.
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

// onFailed is the function that the driver calls.
func (r *run) onFailed(reason error) {
	select {
	case r.failures <- reason:
	default: // an earlier reason has not been read yet
	}
}

// failure is why the driver could not terminate its instance, which goes on.
type failure struct{ error }

// ask makes an act of each request to terminate the instance, until the driver has exited. A request that this
// engine may not make now is dropped: the controller repeats it.
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
				r.stop(err) // it is made as soon as this engine may: see restart.ErrInterrupted
			} else {
				r.failed(err)
			}
		}
	}
}

// isByProbe reports whether the restart is made because a probe fails. An operator who has asked for a restart gets one, or is
// told why not.
func (r *run) isByProbe() bool {
	st, _ := r.fleet.config.Engine.Target(r.target)
	return st.Instance.Reason == probe.ReasonEnding
}

// hasHelped reports whether a restart that an earlier owner has begun because probes fail has ended well, by an attempt
// at each of them: they are on hold, and have not been attempted since. It returns an
// error if an attempt has no outcome.
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
			return false, fmt.Errorf("it may have ended, and the attempt to see that has no outcome: %s: %s", result.Reason, result.Detail)
		}
	}
	if hasFailed {
		r.fleet.config.Logger.Info("restart not repeated: an earlier owner has begun it, and the target is well", "target", r.target, "instance", st.Instance.ID)
	}
	return hasFailed, nil
}

// attempt makes an attempt at a probe that changes no verdict. Of a probe with a quorum it is a look at the votes.
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

// overdueAfter is after how long an act that goes on is logged, and after how long again: the shard stays where it is
// until then, and this engine cannot be drained.
const overdueAfter = time.Minute

// terminate asks the driver once to terminate the instance, and returns when it has exited, has failed, or is
// stopped since acting is done. A driver that has not received the request by then is not stopped.
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
		case grace = <-r.end: // has no effect once the driver has received one: it says how that has ended
		case reason := <-r.failures:
			return failure{reason}
		case <-r.exited:
			return r.exit.Err
		case <-overdue.C:
			r.fleet.config.Logger.Warn("restart under way: this engine keeps the target, and others of its shard, until the restart has ended or failed", "target", r.target, "for", time.Since(began).Round(time.Second))
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
