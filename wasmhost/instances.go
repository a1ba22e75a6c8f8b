package wasmhost

import (
	"context"
	"errors"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// lease is an instance that a caller of borrow has, and gives back to release.
type lease struct {
	*sandbox.Instance
	since time.Time
}

// borrow returns an instance that is ready to run. It waits for one until half of the time
// that ctx leaves has passed. Each lease needs a release.
func (p *Plugin) borrow(ctx context.Context) (lease, error) {
	if !p.inUse.TryRLock() {
		return lease{}, errClosed
	}
	l, err := p.getOrStart(ctx)
	if err != nil {
		p.inUse.RUnlock()
	}
	return l, err
}

// getOrStart takes an instance out of the pool, or starts one.
func (p *Plugin) getOrStart(ctx context.Context) (lease, error) {
	i, waited, err := p.pool.Get(ctx)
	if waited {
		p.counters.waits.Add(1)
	}
	start := time.Now()
	switch {
	case i != nil:
		return lease{i, start}, nil
	case errors.Is(err, context.Canceled):
		return lease{}, &attemptError{probe.ReasonStopped, errCancelled}
	case err != nil:
		return lease{}, &attemptError{ReasonBusy, err}
	}
	if i, err = p.sandbox.Start(ctx); err == nil {
		took := time.Since(start)
		p.counters.started.Add(1)
		p.counters.startNS.Add(int64(took))
		return lease{i, start.Add(took)}, nil
	}
	p.pool.Observe(time.Since(start))
	p.pool.Put(nil)
	if errors.Is(ctx.Err(), context.Canceled) {
		return lease{}, &attemptError{probe.ReasonStopped, errCancelled}
	}
	return lease{}, &attemptError{ReasonStart, err}
}

// release gives an instance back. One whose call did not return is never used again: its
// memory and its stack may be in any state.
func (p *Plugin) release(l lease, returned bool) {
	p.pool.Observe(time.Since(l.since))
	i := l.Instance
	if !returned || i.Spent() {
		i.Close()
		i = nil
	}
	p.pool.Put(i)
	p.inUse.RUnlock()
}
