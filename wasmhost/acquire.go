package wasmhost

import (
	"context"
	"errors"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// fault is why an attempt could not be made.
type fault struct {
	reason probe.Reason
	err    error
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// unavailable is the result of an attempt that could not be made.
func (p *Plugin) unavailable(err error) probe.Result {
	why := &fault{ReasonBroken, err}
	errors.As(err, &why)
	switch {
	case errors.Is(err, errCompiling):
		return probe.Broken(ReasonCompiling, "%v", err)
	case errors.Is(err, errClosed):
		return probe.Broken(ReasonClosed, "%v", err)
	}
	result := probe.Broken(why.reason, "%s", firstLine(err))
	if why.reason == ReasonStart {
		p.note(ending{result: result, trapped: true}, probe.Target{})
	} else {
		p.counters.fault(why.reason) // which knows that a cancelled attempt is none
	}
	return result
}

var errCancelled = errors.New("the attempt was cancelled")

// borrow returns an instance that is ready to run. It waits for its turn until ctx is
// done. Each one that it returns needs a release.
func (p *Plugin) borrow(ctx context.Context) (*instance, error) {
	if !p.use.TryRLock() {
		return nil, errClosed
	}
	i, err := p.turn(ctx)
	if err != nil {
		p.use.RUnlock()
	}
	return i, err
}

// turn takes an instance out of the pool, or starts one.
func (p *Plugin) turn(ctx context.Context) (*instance, error) {
	i, waited, err := p.pool.Get(ctx)
	if waited {
		p.counters.waits.Add(1)
	}
	began := time.Now()
	switch {
	case i != nil:
		i.taken = began
		return i, nil
	case errors.Is(err, context.Canceled):
		return nil, &fault{probe.ReasonStopped, errCancelled}
	case err != nil:
		return nil, &fault{ReasonBusy, err}
	}
	if i, err = p.start(ctx); err == nil {
		i.taken = time.Now()
		return i, nil
	}
	p.pool.Observe(time.Since(began))
	p.pool.Put(nil)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, &fault{probe.ReasonStopped, errCancelled}
	}
	return nil, &fault{ReasonStart, err}
}

// release gives an instance back after a call that ended with err. One whose call did
// not return is never used again: its memory and its stack may be in any state.
func (p *Plugin) release(i *instance, err error) {
	p.pool.Observe(time.Since(i.taken))
	if err != nil || i.tired() {
		i.close()
		i = nil
	}
	p.pool.Put(i)
	p.use.RUnlock()
}
