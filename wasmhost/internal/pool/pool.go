// Package pool hands out a bounded number of plugin instances in the order of the
// callers' arrival.
package pool

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Pool lends instances of type T. It lends the most recently used instance first, so that
// the others become idle and can be closed.
//
// A pool starts with few instances, and its limit rises only when a call returns. A call
// that overflows its stack uses a lot of memory before it fails; the slow start keeps that
// from happening in all instances at once.
type Pool[T any] struct {
	limit int
	close func(*T)

	mu      sync.Mutex
	allowed int // instances for now, at most limit
	idle    []idle[T]
	live    int           // instances that are idle, lent or being started
	waiting list.List     // of chan *T
	average time.Duration // moving average of how long an instance is lent
}

type idle[T any] struct {
	instance *T
	since    time.Time
}

// startInstances is how many instances a pool starts with.
const startInstances = 4

// New returns a pool of at most limit instances, which it ends with close.
func New[T any](limit int, close func(*T)) *Pool[T] {
	return &Pool[T]{limit: limit, allowed: min(limit, startInstances), close: close}
}

// maxIdle is how long an unused instance is kept.
const maxIdle = time.Minute

// ErrBusy means that no instance will be available in time.
var ErrBusy = errors.New("all instances were busy for half of the attempt's time")

// Get returns an idle instance, or nil when the caller is to start one. It waits while
// all are lent, for half of the time that ctx leaves: the other half is for the target,
// which would otherwise be blamed for being late. It does not wait when the queue is too
// long already. Each Get without an error needs a Put.
func (p *Pool[T]) Get(ctx context.Context) (i *T, waited bool, err error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 && p.live-n < p.allowed {
		i, p.idle = p.idle[n-1].instance, p.idle[:n-1]
		p.mu.Unlock()
		return i, false, nil
	}
	if p.live < p.allowed {
		p.live++
		p.mu.Unlock()
		return nil, false, nil
	}
	half, cancel := Half(ctx)
	defer cancel()
	if p.queueTooLong(half) {
		p.mu.Unlock()
		return nil, false, ErrBusy
	}
	granted := make(chan *T, 1)
	e := p.waiting.PushBack(granted)
	p.mu.Unlock()
	select {
	case i := <-granted:
		return i, true, nil
	case <-half.Done():
	}
	p.cancelWait(e, granted)
	if err := half.Err(); errors.Is(err, context.Canceled) {
		return nil, true, err
	}
	return nil, true, ErrBusy
}

// Half returns a context that is done when half of the time that ctx leaves has passed.
func Half(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// maxQueueFactor: a caller is refused at once when its estimated wait exceeds this
// multiple of the time it has. Above 1, so that calls can get faster meanwhile.
const maxQueueFactor = 2

// queueTooLong reports whether a new caller would get an instance only long after its
// deadline, even with as many instances as the limit allows. Callers that wait hold
// goroutines that other probes need.
func (p *Pool[T]) queueTooLong(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	rounds := time.Duration(p.waiting.Len() / p.limit)
	return ok && rounds*p.average > maxQueueFactor*time.Until(deadline)
}

// Observe records how long an instance was lent.
func (p *Pool[T]) Observe(took time.Duration) {
	const weight = 8 // of the earlier observations
	p.mu.Lock()
	defer p.mu.Unlock()
	p.average += (took - p.average) / weight
}

// cancelWait removes a caller from the queue, and passes on what it was granted in the
// meantime.
func (p *Pool[T]) cancelWait(e *list.Element, granted chan *T) {
	p.mu.Lock()
	p.waiting.Remove(e)
	p.mu.Unlock()
	select {
	case i := <-granted:
		p.Put(i)
	default:
	}
}

// Put returns an instance; nil means that it was closed and another may be started.
func (p *Pool[T]) Put(i *T) {
	if old := p.put(i); old != nil {
		p.close(old)
	}
}

// put is Put, except that it returns the instance to close, or nil.
func (p *Pool[T]) put(i *T) (old *T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live > p.allowed {
		p.live--
		return i
	}
	if e := p.waiting.Front(); e != nil {
		p.waiting.Remove(e).(chan *T) <- i
		return nil
	}
	if i == nil {
		p.live--
		return nil
	}
	now := time.Now()
	p.idle = append(p.idle, idle[T]{i, now})
	return p.takeExpired(now)
}

// takeExpired removes and returns the instance that was unused for longest, if that is
// longer than maxIdle.
func (p *Pool[T]) takeExpired(now time.Time) *T {
	oldest := p.idle[0]
	if now.Sub(oldest.since) < maxIdle {
		return nil
	}
	p.idle = slices.Delete(p.idle, 0, 1)
	p.live--
	return oldest.instance
}

// Grow doubles the number of instances that are allowed, up to the limit.
func (p *Pool[T]) Grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allowed == p.limit {
		return
	}
	p.allowed = min(2*p.allowed, p.limit)
	for e := p.waiting.Front(); e != nil && p.live < p.allowed; e = p.waiting.Front() {
		p.live++
		p.waiting.Remove(e).(chan *T) <- nil
	}
}

// Shrink allows as few instances as at the start, and closes the idle ones.
func (p *Pool[T]) Shrink() {
	p.mu.Lock()
	p.allowed = min(p.limit, startInstances)
	p.mu.Unlock()
	p.CloseIdle()
}

// CloseIdle closes the idle instances.
func (p *Pool[T]) CloseIdle() {
	p.mu.Lock()
	all := p.idle
	p.idle = nil
	p.live -= len(all)
	p.mu.Unlock()
	for _, i := range all {
		p.close(i.instance)
	}
}

// Counts returns the number of idle instances, of all instances, and of waiting callers.
func (p *Pool[T]) Counts() (idle, live, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle), p.live, p.waiting.Len()
}
