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

// lease is an instance that borrow lends to a caller until release.
type lease struct {
	*sandbox.Instance
	lane  lane
	since time.Time
}

// borrow returns an instance that is ready to run. It waits for at most half of the time until
// ctx's deadline. Each lease needs a release.
func (p *Plugin) borrow(ctx context.Context, l lane) (lease, error) {
	if !p.inUse.TryRLock() {
		return lease{}, errClosed
	}
	i, err := p.getOrStart(ctx, l)
	if err != nil && !errors.Is(err, errStarting) { // otherwise the goroutine of await releases the lock
		p.inUse.RUnlock()
	}
	return i, err
}

// getOrStart takes an instance from the pool, or starts a new one.
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

// errStarting means that an attempt stopped waiting for the start of its instance; a later attempt
// uses the instance.
var errStarting = errors.New("an instance is being started")

// await calls start in a new goroutine and returns its result. If ctx is done first, await returns
// errStarting, and the goroutine later puts the instance into the pool: limits.start bounds a
// start, not the time left in an attempt.
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

// abandoned returns the error of an attempt that stopped waiting for a start or a check, which
// continues without it.
func abandoned(ctx context.Context, waited error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return &attemptError{probe.ReasonStopped, errors.Join(errCancelled, waited)}
	}
	return &attemptError{ReasonStarting, waited}
}

// start starts an instance and records the result.
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

// startFailed records a failed start of an instance and returns its error. The plugin is not at fault
// if it is being closed, or if this machine lacked memory or gave the start hardly any processor time.
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
		p.logger.Warn("plugin instance failed to start", "reason", string(reason), "error", firstLine(err))
		p.logSuspension(p.breaker.countStart(true, time.Now()))
		return &attemptError{reason, err}
	}
	p.logger.Warn("plugin instance failed to start for lack of resources; the next attempt retries", "reason", string(reason), "error", firstLine(err))
	return &attemptError{reason, err}
}

// release resets an instance and returns it to the pool: data of one target must not reach another.
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
