package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/internal/docker"
)

// act is a requested restart of a container.
type act struct {
	done   chan error // capacity 1: nil when this engine's part of the restart is done
	isDone bool       // nil was received from done; belongs to the goroutine that began the act
	cancel context.CancelFunc

	mu    sync.Mutex // guards the fields below
	how   manner
	by    time.Time   // the end of the grace period
	timer *time.Timer // fires at that time; nil unless how is bySignal
}

// manner is the way in which an instance was asked to exit.
type manner uint8

const (
	notAsked manner = iota
	bySignal        // its runtime starts it again by its own policy
	byAPI           // the runtime does the whole restart
)

// act begins to restart exactly this instance of a container. If its runtime starts it again by its own policy and the
// engine may signal its process, it is terminated by a signal; otherwise the runtime restarts it.
func (rt *runtime) act(ctx context.Context, c docker.Container, grace time.Duration) *act {
	ctx, cancel := context.WithCancel(ctx)
	a := &act{done: make(chan error, 1), cancel: cancel}
	a.shorten(grace)
	go func() {
		defer cancel()
		a.done <- rt.perform(ctx, a, c, grace)
	}()
	return a
}

// finished returns a channel that receives the error of the act, or nil, when the act is over.
func (a *act) finished() <-chan error {
	if a == nil {
		return nil
	}
	return a.done
}

// manner returns how the instance was asked to exit, or notAsked.
func (a *act) manner() manner {
	if a == nil {
		return notAsked
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.how
}

// shorten moves the end of the grace period to d from now, unless it is earlier already.
func (a *act) shorten(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if by := time.Now().Add(d); a.by.IsZero() || by.Before(a.by) {
		a.by = by
		if a.timer != nil {
			a.timer.Reset(d)
		}
	}
}

// settle waits for the end of the act and returns its error. It cancels an act by signal, but not a restart by the
// runtime: half of one would leave the container stopped.
func (a *act) settle() error {
	if a == nil || a.isDone {
		return nil
	}
	if a.manner() != byAPI {
		a.cancel()
	}
	return <-a.done
}

var errPaused = errors.New("the container is paused; unpause it so that it can exit")

// perform restarts the instance.
func (rt *runtime) perform(ctx context.Context, a *act, c docker.Container, grace time.Duration) error {
	if now, err := rt.Inspect(ctx, c.ID); err == nil && now.State.Paused {
		return errPaused
	}
	if c.Restarts() {
		err := rt.signal(ctx, a, c)
		if err == nil || errors.Is(err, docker.ErrChanged) || ctx.Err() != nil || a.manner() != notAsked {
			return err
		} // otherwise this engine cannot signal the process
	}
	if err := rt.Check(ctx, c); err != nil {
		return err
	}
	a.ask(byAPI, nil)
	return rt.Restart(ctx, c.ID, grace)
}

// ask records how the instance is being asked to exit, and starts the timer.
func (a *act) ask(how manner, timer *time.Timer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.how, a.timer = how, timer
	if timer != nil {
		timer.Reset(time.Until(a.by))
	}
}

// signal asks the first process of the instance to exit, and kills it when the grace period is over. It returns when
// ctx is done, which happens when the instance has exited.
func (rt *runtime) signal(ctx context.Context, a *act, c docker.Container) error {
	p, err := rt.OpenProcess(ctx, c)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Signal(c.SignalToStop()); err != nil {
		return err
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	a.ask(bySignal, timer)
	select {
	case <-ctx.Done():
		return nil
	case <-timer.C:
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("SIGKILL: %w", err)
	}
	<-ctx.Done()
	return nil
}
