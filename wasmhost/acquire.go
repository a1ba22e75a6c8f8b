package wasmhost

import (
	"context"
	"errors"

	"github.com/sonde-probe/sonde/probe"
)

// acquire returns an instance that is ready to run. It waits for its turn until ctx
// is done. Each one that it returns needs a release; else result says why there is
// none.
func (p *Plugin) acquire(ctx context.Context) (i *instance, result probe.Result, ok bool) {
	i, err := p.borrow(ctx)
	switch {
	case err == nil:
		return i, probe.Result{}, true
	case errors.Is(err, errClosed):
		return nil, unavailable(err), false
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, probe.Broken(probe.ReasonStopped, "the attempt was cancelled"), false
	case errors.Is(err, errBusy):
		return nil, probe.Broken(ReasonBusy, "%v", err), false
	}
	end := ending{result: probe.Broken(ReasonStart, "%s", firstLine(err)), trapped: true}
	p.note(end, probe.Target{})
	return nil, end.result, false
}

var errBusy = errors.New("all instances were busy until the deadline")

// borrow is acquire with errors.
func (p *Plugin) borrow(ctx context.Context) (*instance, error) {
	if !p.use.TryRLock() {
		return nil, errClosed
	}
	i, waited, err := p.pool.take(ctx)
	if waited {
		p.counters.waits.Add(1)
	}
	if err != nil {
		p.use.RUnlock()
		return nil, errBusy
	}
	if i != nil {
		return i, nil
	}
	if i, err = p.start(ctx); err != nil {
		p.pool.give(nil)
		p.use.RUnlock()
		return nil, err
	}
	return i, nil
}

// release gives an instance back after a call that ended with err. One whose call did
// not return is never used again: its memory and its stack may be in any state.
func (p *Plugin) release(i *instance, err error) {
	if err != nil || i.tired() {
		i.close()
		i = nil
	}
	p.pool.give(i)
	p.use.RUnlock()
}
