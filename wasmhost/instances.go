package wasmhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// lease is an instance that a caller of borrow has, and gives back to release.
type lease struct {
	*sandbox.Instance
	lane  lane
	since time.Time
}

// borrow returns an instance that is ready to run. It waits for one until half of the time
// that ctx leaves has passed. Each lease needs a release.
func (p *Plugin) borrow(ctx context.Context, l lane) (lease, error) {
	if !p.inUse.TryRLock() {
		return lease{}, errClosed
	}
	i, err := p.getOrStart(ctx, l)
	if err != nil && !errors.Is(err, errStarting) { // then start releases the lock
		p.inUse.RUnlock()
	}
	return i, err
}

// getOrStart takes an instance out of the pool, or starts one.
func (p *Plugin) getOrStart(ctx context.Context, l lane) (lease, error) {
	began := time.Now()
	i, waited, err := p.pool.get(ctx, l)
	if waited {
		p.counters.waits.Add(1)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return lease{}, &attemptError{probe.ReasonStopped, errCancelled}
	case err != nil:
		return lease{}, &attemptError{ReasonBusy, err}
	case i == nil:
		half, cancel := halfOf(ctx, began)
		defer cancel()
		i, err = p.await(half, p.start)
	}
	if err != nil {
		return lease{}, err
	}
	return lease{i, l, time.Now()}, nil
}

// errStarting says that an attempt did not wait for its instance, which another one gets.
var errStarting = errors.New("an instance is being started")

// await calls start on a goroutine of its own, and returns its result. When ctx is done it
// returns errStarting, and the goroutine gives the instance to the pool: how long a start
// may take is limits.start, not what is left of an attempt.
func (p *Plugin) await(ctx context.Context, start func() (*sandbox.Instance, error)) (*sandbox.Instance, error) {
	type result struct {
		instance *sandbox.Instance
		err      error
	}
	started, left := make(chan result), make(chan struct{})
	go func() {
		i, err := start()
		p.pool.started()
		if err != nil {
			p.pool.put(nil)
		}
		select {
		case started <- result{i, err}:
			return
		case <-left:
		}
		if err == nil {
			p.pool.put(i)
		}
		p.inUse.RUnlock()
	}()
	select {
	case r := <-started:
		return r.instance, r.err
	case <-ctx.Done():
	}
	close(left)
	return nil, abandoned(ctx, errStarting)
}

// abandoned returns why an attempt does not wait any longer for what goes on without it.
func abandoned(ctx context.Context, waited error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &attemptError{probe.ReasonStopped, errors.Join(errCancelled, waited)}
	}
	return &attemptError{ReasonStarting, waited}
}

// start starts an instance, and records a failure.
func (p *Plugin) start() (i *sandbox.Instance, err error) {
	began := time.Now()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("start: panic: %v", r)
		}
		if err != nil {
			err = p.startFailed(time.Since(began), err)
		}
	}()
	if i, err = p.sandbox.Start(p.closing); err == nil {
		p.breaker.countStart(false, time.Now())
		p.starts.started.Add(1)
		p.starts.startNS.Add(int64(time.Since(began)))
	}
	return i, err
}

// startFailed records that an instance could not be started. The plugin is not at fault if it is being
// closed, or if this machine lacks memory, or gave it hardly any processor time.
func (p *Plugin) startFailed(took time.Duration, err error) error {
	if p.closing.Err() != nil {
		return errClosed
	}
	p.pool.observe(laneFirst, took)
	reason := reasonStart
	if shortage.Is(err) || errors.Is(err, sandbox.ErrNoMemory) || errors.Is(err, sandbox.ErrSystem) {
		reason = probe.ReasonResources
	}
	p.counters.fault(reason)
	if reason == reasonStart && !errors.Is(err, sandbox.ErrStarved) {
		p.logger.Warn("instance of the plugin could not be started", "reason", string(reason), "error", firstLine(err))
		p.logSuspension(p.breaker.countStart(true, time.Now()))
		return &attemptError{reason, err}
	}
	p.logger.Warn("instance of the plugin could not be started now, the next attempt tries again", "reason", string(reason), "error", firstLine(err))
	return &attemptError{reason, err}
}

// release gives an instance back, after a reset: what a call has left in it, another target
// must not get.
func (p *Plugin) release(l lease) {
	p.pool.observe(l.lane, time.Since(l.since))
	i := l.Instance
	if i.Spent() || !i.Reset() {
		i.Close()
		i = nil
	}
	p.pool.put(i)
	p.inUse.RUnlock()
}
