package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
)

// minSignalGrace is the minimum time that a container has to exit after its PreStop; as in package process.
const minSignalGrace = 2 * time.Second

// termination is a requested end of an instance of an owned container.
type termination struct {
	done   chan error // capacity 1: an error if the instance could not be asked to exit, or could not be killed
	cancel context.CancelFunc

	mu    sync.Mutex // guards by and timer
	by    time.Time  // the end of the grace period
	timer *time.Timer
}

// terminate begins to terminate exactly this instance of a container.
func (r *ownedRun) terminate(ctx context.Context, c docker.Container, grace time.Duration) *termination {
	ctx, cancel := context.WithCancel(ctx)
	t := &termination{done: make(chan error, 1), cancel: cancel, by: time.Now().Add(grace), timer: time.NewTimer(grace)}
	go func() {
		defer cancel()
		t.done <- r.performEnd(ctx, t, c)
	}()
	return t
}

// finished returns a channel that receives an error when the termination has failed.
func (t *termination) finished() <-chan error {
	if t == nil {
		return nil
	}
	return t.done
}

// end cancels the termination of an instance that has exited, and waits for it to return.
func (t *termination) end() {
	if t != nil {
		t.cancel()
		<-t.done
	}
}

// shorten moves the end of the grace period to d from now, unless it is earlier already.
func (t *termination) shorten(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if by := time.Now().Add(d); by.Before(t.by) {
		t.by = by
		t.timer.Reset(d)
	}
}

// extend moves the end of the grace period to d from now, unless it is later already.
func (t *termination) extend(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if by := time.Now().Add(d); by.After(t.by) {
		t.by = by
		t.timer.Reset(d)
	}
}

// performEnd asks the instance to exit, and kills it after the grace period. It returns early if ctx is done.
func (r *ownedRun) performEnd(ctx context.Context, t *termination, c docker.Container) error {
	defer t.timer.Stop()
	if err := r.rt.Check(ctx, c); err != nil {
		return err
	}
	stop := r.stop.Load()
	signal := "SIGTERM"
	switch {
	case stop != nil && stop.Signal != 0 && stop.Signal != restart.DefaultStopSignal:
		signal = stop.Signal.String()
	case c.StopSignal != "":
		signal = c.StopSignal
	}
	if stop != nil && stop.PreStop != nil && time.Until(t.by) > 0 {
		if err := r.preStop(ctx, t, c, stop.PreStop); err != nil && ctx.Err() == nil {
			r.log.Warn("pre_stop failed; the container is asked to exit anyway", "container", c.Name, "error", err)
		}
		t.extend(minSignalGrace)
	}
	if err := r.kill(ctx, c, signal); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-t.timer.C:
	}
	if err := r.kill(ctx, c, "SIGKILL"); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// kill sends a signal to the container. It returns no error if the instance has exited already.
func (r *ownedRun) kill(ctx context.Context, c docker.Container, signal string) error {
	err := r.rt.Kill(ctx, c.ID, signal)
	if ctx.Err() != nil || errors.Is(err, docker.ErrConflict) || errors.Is(err, docker.ErrNotFound) {
		return nil
	}
	return err
}

// preStop runs the action before the signal, at most until the grace period is over.
func (r *ownedRun) preStop(ctx context.Context, t *termination, c docker.Container, p *restart.PreStop) error {
	ctx, cancel := context.WithDeadline(ctx, t.by)
	defer cancel()
	switch {
	case p.Sleep > 0:
		select {
		case <-ctx.Done():
		case <-time.After(p.Sleep):
		}
		return nil
	case p.URL != "":
		return p.Request(ctx)
	}
	output := &command.Output{Max: maxOutput, Last: true}
	end, err := r.rt.Run(ctx, docker.Exec{Container: c.ID, Command: p.Command, Stdout: output, Stderr: output})
	switch {
	case err != nil:
		return err
	case end.TimedOut:
		return errors.New("it has not ended within the grace period")
	case end.Code != 0:
		return fmt.Errorf("exit status %d: %s", end.Code, command.LastLines(probe.CleanText(output.String(), maxOutput), maxPreStopText))
	}
	return nil
}

// maxPreStopText is the maximum size of a command's output in an error, in bytes.
const maxPreStopText = 200
