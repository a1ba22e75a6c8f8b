package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/adapter/restart"
	"github.com/sonde-probe/sonde/coord"
)

// actRestart is the name of the acts that terminate instances.
const actRestart = "restart"

// afterGrace is how long an instance may take to terminate after its grace period.
const afterGrace = 5 * time.Second

// guarded is a driver that is asked to terminate an instance by an act only: once, by the owner of the
// target's shard.
type guarded struct {
	fleet  *Fleet
	target string
	driver restart.External
}

var (
	errRuns       = errors.New("the instance still runs after its grace period")
	errTerminated = errors.New("another engine has terminated the instance")
)

// External implements restart.External.
func (guarded) External() {}

// Resume implements restart.Resumer.
func (g guarded) Resume(id string) bool {
	r, ok := g.driver.(restart.Resumer)
	return ok && r.Resume(id)
}

// Run implements restart.Driver. An instance that another engine has terminated has ended, whether the driver
// notices or not.
func (g guarded) Run(ctx context.Context, began func(id string), end <-chan time.Duration) restart.Exit {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	allowed, started, exited := make(chan time.Duration, 1), make(chan string, 1), make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		select {
		case id := <-started:
			if err := g.ask(ctx, id, end, allowed, exited); err != nil {
				stop(err)
			}
		case <-exited:
		}
	})
	defer asking.Wait()
	defer close(exited)
	exit := g.driver.Run(running, func(id string) { started <- id; began(id) }, allowed)
	if ctx.Err() == nil && errors.Is(context.Cause(running), errTerminated) {
		return restart.Exit{Output: errTerminated.Error()}
	}
	return exit
}

// ask forwards requests to terminate an instance until it has exited, each as an act. One that this engine
// may not do now is dropped: the controller asks again. The error is errTerminated if it was done before.
func (g guarded) ask(ctx context.Context, id string, end <-chan time.Duration, allowed chan time.Duration, exited <-chan struct{}) error {
	for {
		select {
		case grace := <-end:
			order := coord.Order{Name: actRestart, Target: g.target, Instance: id}
			err := g.fleet.config.Coordinator.Act(ctx, order, func(acting context.Context) error {
				return terminate(acting, grace, end, allowed, exited)
			})
			switch {
			case errors.Is(err, coord.ErrDone):
				return errTerminated
			case err != nil && ctx.Err() == nil:
				g.fleet.config.Logger.Warn("restart withheld", "target", g.target, "instance", id, "error", err)
			}
		case <-exited:
			return nil
		}
	}
}

// terminate asks for the end of an instance, and waits for it.
func terminate(ctx context.Context, grace time.Duration, end <-chan time.Duration, allowed chan time.Duration, exited <-chan struct{}) error {
	for {
		select {
		case <-allowed: // a longer grace period that the driver has not received yet
		default:
		}
		allowed <- grace // never blocks: this goroutine is the only sender
		late := time.NewTimer(grace + afterGrace)
		select {
		case <-exited:
			late.Stop()
			return ctx.Err() // released, and not terminated, if it is done
		case grace = <-end:
			late.Stop()
		case <-late.C:
			return errRuns
		case <-ctx.Done():
			late.Stop()
			select {
			case <-allowed: // the driver has not received it, and must not any more
			default:
			}
			return context.Cause(ctx)
		}
	}
}
