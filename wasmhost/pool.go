package wasmhost

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// pool gives out the instances of a plugin, of which there is a bounded number.
// Who comes first is served first; the instance that was used last is used next,
// so that the others can be given up.
//
// A plugin begins with few instances, and gets more with each call that returns: a
// call that does not, since it calls itself without end, takes much memory before it
// ends, and should not do that in all instances at once.
type pool struct {
	limit int
	close func(*instance)

	mu      sync.Mutex
	most    int // for now
	idle    []*instance
	live    int           // idle and given out, with those that are being started
	waiting list.List     // of chan *instance
	usual   time.Duration // how long an instance was out, on a moving average
}

// trialInstances is how many instances a plugin begins with.
const trialInstances = 4

func newPool(limit int) *pool {
	return &pool{limit: limit, most: min(limit, trialInstances), close: (*instance).close}
}

// idleTime is how long an instance that nobody needs is kept.
const idleTime = time.Minute

// errBusy says that no instance can be had in time.
var errBusy = errors.New("all instances were busy for half of the attempt's time")

// take returns an idle instance, or nil when the caller is to start one. It waits
// while all are given out, for half of the time that ctx leaves: whoever gets an
// instance shall have the other half for the target, or it would be the target that
// seems to be late. It does not begin to wait where so many do already that it would
// be in vain. Each take that returns no error needs a give.
func (p *pool) take(ctx context.Context) (i *instance, waited bool, err error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 && p.live-n < p.most {
		i, p.idle = p.idle[n-1], p.idle[:n-1]
		p.mu.Unlock()
		return i, false, nil
	}
	if p.live < p.most {
		p.live++
		p.mu.Unlock()
		return nil, false, nil
	}
	until := half(ctx)
	if p.hopeless(until) {
		p.mu.Unlock()
		return nil, false, errBusy
	}
	turn := make(chan *instance, 1)
	e := p.waiting.PushBack(turn)
	p.mu.Unlock()
	i, err = wait(ctx, turn, until)
	if err != nil {
		p.leave(e, turn)
	}
	return i, true, err
}

// half returns when half of the time that ctx leaves will have passed; never is the zero
// time.
func half(ctx context.Context) time.Time {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Time{}
	}
	return time.Now().Add(time.Until(end) / 2)
}

func wait(ctx context.Context, turn <-chan *instance, until time.Time) (*instance, error) {
	passed, stop := alarm(until)
	defer stop()
	select {
	case i := <-turn:
		return i, nil
	case <-passed:
		return nil, errBusy
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// patience is how many times as long as one would wait it may take, as far as can be
// told, until one's turn comes. It leaves room for calls that get faster.
const patience = 2

// hopeless reports whether all who wait will have had their turns only long after a
// time, with as many instances as there may be at most. Those who wait hold goroutines
// that other probes need.
func (p *pool) hopeless(until time.Time) bool {
	turns := time.Duration(p.waiting.Len() / p.limit)
	return !until.IsZero() && turns*p.usual > patience*time.Until(until)
}

// used takes note of how long an instance was out.
func (p *pool) used(took time.Duration) {
	const weight = 8 // of what was before
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usual += (took - p.usual) / weight
}

// leave takes a waiter out of the queue, and passes on what it was given meanwhile.
func (p *pool) leave(e *list.Element, turn chan *instance) {
	p.mu.Lock()
	p.waiting.Remove(e)
	p.mu.Unlock()
	select {
	case i := <-turn:
		p.give(i)
	default:
	}
}

// give returns an instance, or nil when it is gone and another may be started.
func (p *pool) give(i *instance) {
	p.mu.Lock()
	if p.live > p.most {
		p.live--
		p.mu.Unlock()
		if i != nil {
			p.close(i)
		}
		return
	}
	if e := p.waiting.Front(); e != nil {
		p.waiting.Remove(e).(chan *instance) <- i
		p.mu.Unlock()
		return
	}
	if i == nil {
		p.live--
		p.mu.Unlock()
		return
	}
	i.used = time.Now()
	p.idle = append(p.idle, i)
	old := p.outgrown(i.used)
	p.mu.Unlock()
	if old != nil {
		p.close(old)
	}
}

// outgrown takes out the instance that has not been used for longest, if that is too
// long.
func (p *pool) outgrown(now time.Time) *instance {
	old := p.idle[0]
	if now.Sub(old.used) < idleTime {
		return nil
	}
	p.idle = append(p.idle[:0], p.idle[1:]...)
	p.live--
	return old
}

// widen lets the plugin have twice as many instances, up to the limit.
func (p *pool) widen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most == p.limit {
		return
	}
	p.most = min(2*p.most, p.limit)
	for e := p.waiting.Front(); e != nil && p.live < p.most; e = p.waiting.Front() {
		p.live++
		p.waiting.Remove(e).(chan *instance) <- nil
	}
}

// narrow lets the plugin have as few instances as at the beginning.
func (p *pool) narrow() {
	p.mu.Lock()
	p.most = min(p.limit, trialInstances)
	p.mu.Unlock()
	p.drain()
}

// drain closes the idle instances.
func (p *pool) drain() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.live -= len(idle)
	p.mu.Unlock()
	for _, i := range idle {
		p.close(i)
	}
}

// sizes returns how many instances are idle, how many there are, and how many
// attempts wait.
func (p *pool) sizes() (idle, live, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle), p.live, p.waiting.Len()
}
