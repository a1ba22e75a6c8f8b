package wasmhost

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// pool lends a bounded number of instances, with a reserve for callers that are expected to return
// them soon. It lends the most recently used instance first, so that the others expire and can be
// closed. It is safe for concurrent use by multiple goroutines.
type pool struct {
	limit   int
	room    func() int // returns how many more instances fit into memory
	reclaim func()     // makes other pools release memory
	close   func(*sandbox.Instance)

	mu       sync.Mutex // guards all below
	allowed  int        // current maximum of instances, at most limit
	resized  time.Time  // when allowed was changed
	idle     []idleInstance
	live     int                  // instances that are idle, lent or being started
	starting int                  // the part of live that is being started
	waiting  [lanes]list.List     // elements are chan *sandbox.Instance
	average  [lanes]time.Duration // moving average of the time for which an instance is lent
}

type idleInstance struct {
	instance *sandbox.Instance
	since    time.Time
}

// lane classifies callers by the time for which they will probably keep an instance.
type lane uint8

// The lanes, in order of priority.
const (
	laneFast  lane = iota // a short time
	laneFirst             // an unknown time: the first attempt
	laneSlow              // until its deadline
	lanes
)

const (
	// slowShare is the divisor of the reserve: slow callers leave one in slowShare instances to
	// others, so that the other targets need not wait when most targets hang. Callers of laneFirst
	// leave half of that to fast ones, since they may hang.
	slowShare = 4

	// maxStarting is the maximum number of concurrent starts. Starts need the processors: with many
	// at a time, each one is slow.
	maxStarting = 4
)

// newPool returns a pool of at most limit instances, which it closes with close. At any time
// callers may start at most room() more instances; room is called with the pool locked. reclaim is
// called before a caller waits: it frees memory if other pools use more than their share.
func newPool(limit int, room func() int, reclaim func(), close func(*sandbox.Instance)) *pool {
	return &pool{limit: limit, allowed: limit, room: room, reclaim: reclaim, close: close}
}

// maxIdle is the time for which an unused instance is kept.
const maxIdle = time.Minute

// errBusy means that no instance became available in time, or that the queue is too long to wait.
var errBusy = errors.New("no instance became available within half of the attempt's timeout")

// get returns an idle instance, or nil if the caller must start one and then call started. If no
// instance is available in the caller's lane, it waits for at most half of the time until ctx's
// deadline: the other half is left for the target, which would otherwise be blamed for being late.
// If the queue is already too long, it returns errBusy at once. Each get that returns no error
// needs a put.
func (p *pool) get(ctx context.Context, l lane) (i *sandbox.Instance, waited bool, err error) {
	if i, ok := p.tryGet(l); ok {
		return i, false, nil
	}
	p.reclaim()
	half, cancel := halfOf(ctx, time.Now())
	defer cancel()
	p.mu.Lock()
	if p.queueTooLong(half, l) {
		p.mu.Unlock()
		return nil, false, errBusy
	}
	granted := make(chan *sandbox.Instance, 1)
	e := p.waiting[l].PushBack(granted)
	p.handOut() // instances may have become available
	p.mu.Unlock()
	select {
	case i := <-granted:
		return i, true, nil
	case <-half.Done():
	}
	p.cancelWait(e, l, granted)
	if err := half.Err(); errors.Is(err, context.Canceled) {
		return nil, true, err
	}
	return nil, true, errBusy
}

// tryGet returns an instance, or nil if the caller must start one. ok is false if the caller must
// wait.
func (p *pool) tryGet(l lane) (i *sandbox.Instance, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queued(l) > 0 {
		return nil, false
	}
	return p.lend(l)
}

// halfOf returns a context whose deadline is halfway between at and the deadline of ctx.
func halfOf(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, at.Add(end.Sub(at)/2))
}

// queued returns the number of waiting callers that precede a new caller in lane l.
func (p *pool) queued(l lane) (n int) {
	for earlier := range l + 1 {
		n += p.waiting[earlier].Len()
	}
	return n
}

// capacity returns the maximum number of live instances at present.
func (p *pool) capacity() int { return min(p.allowed, p.live+p.room()) }

// lend returns an instance, or nil if the caller must start one. ok is false if no instance is
// available to the caller's lane now. The caller holds mu.
func (p *pool) lend(l lane) (i *sandbox.Instance, ok bool) {
	n := len(p.idle)
	lent := p.live - n
	if lent >= p.allowed || n == 0 && p.starting == maxStarting {
		return nil, false
	}
	if l != laneFast || n == 0 {
		capacity := p.capacity()
		reserve := capacity / slowShare
		switch l {
		case laneFirst:
			capacity -= (reserve + 1) / 2
		case laneSlow:
			capacity -= reserve
		}
		if lent >= capacity {
			return nil, false
		}
	}
	if n > 0 {
		i, p.idle = p.idle[n-1].instance, p.idle[:n-1]
		return i, true
	}
	p.live++
	p.starting++
	return nil, true
}

// handOut lends instances to waiting callers.
func (p *pool) handOut() {
	for l := range lanes {
		for e := p.waiting[l].Front(); e != nil; e = p.waiting[l].Front() {
			i, ok := p.lend(l)
			if !ok {
				break
			}
			p.waiting[l].Remove(e).(chan *sandbox.Instance) <- i
		}
	}
}

// started reports that a start has finished, so that the next one may begin. If the start failed,
// the caller must also put nil.
func (p *pool) started() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	p.handOut()
}

// maxQueueFactor bounds the queue: a caller is rejected at once if its estimated wait exceeds this
// multiple of the time until its deadline. It is above 1 because calls may become faster meanwhile.
const maxQueueFactor = 2

// queueTooLong reports whether a new caller would get an instance only long after its deadline.
// Waiting callers occupy goroutines that other probes need.
func (p *pool) queueTooLong(ctx context.Context, l lane) bool {
	deadline, ok := ctx.Deadline()
	rounds := time.Duration(p.queued(l) / max(p.capacity(), 1))
	return ok && rounds*p.average[l] > maxQueueFactor*time.Until(deadline)
}

// observe records the time for which an instance was lent to a caller of a lane.
func (p *pool) observe(l lane, took time.Duration) {
	const weight = 8 // of the earlier observations
	p.mu.Lock()
	defer p.mu.Unlock()
	p.average[l] += (took - p.average[l]) / weight
}

// cancelWait removes a caller from the queue, and returns any instance or start that it was granted
// in the meantime.
func (p *pool) cancelWait(e *list.Element, l lane, granted chan *sandbox.Instance) {
	p.mu.Lock()
	p.waiting[l].Remove(e)
	p.mu.Unlock()
	select {
	case i := <-granted:
		if i == nil {
			p.started()
		}
		p.put(i)
	default:
	}
}

// put returns an instance to the pool; nil means that the instance was closed or could not be
// started.
func (p *pool) put(i *sandbox.Instance) {
	if old := p.keep(i); old != nil {
		p.close(old)
	}
}

// keep does the work of put, but returns the instance that must be closed, or nil.
func (p *pool) keep(i *sandbox.Instance) (old *sandbox.Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.handOut()
	if i == nil || p.live > p.allowed {
		p.live--
		return i
	}
	now := time.Now()
	p.idle = append(p.idle, idleInstance{i, now})
	return p.popExpired(now)
}

// popExpired removes and returns the instance that has been idle for longest, or returns nil if
// that is less than maxIdle.
func (p *pool) popExpired(now time.Time) *sandbox.Instance {
	if now.Sub(p.idle[0].since) < maxIdle {
		return nil
	}
	return p.popOldest()
}

// popOldest removes and returns the instance that has been idle for longest.
func (p *pool) popOldest() *sandbox.Instance {
	oldest := p.idle[0].instance
	p.idle[0], p.idle = idleInstance{}, p.idle[1:]
	p.live--
	return oldest
}

// closeOldest closes the instance that has been idle for longest. It returns false if no instance
// is idle.
func (p *pool) closeOldest() bool {
	p.mu.Lock()
	if len(p.idle) == 0 {
		p.mu.Unlock()
		return false
	}
	oldest := p.popOldest()
	p.mu.Unlock()
	p.close(oldest)
	return true
}

// growPause is the time after a shrink or a grow for which grow does nothing. Otherwise callers
// that return instances quickly would undo a shrink that was caused by callers that compete for the
// processors.
const growPause = time.Second

// grow doubles the number of allowed instances, up to the limit, if shrink has lowered it.
func (p *pool) grow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allowed == p.limit {
		return
	}
	if now := time.Now(); now.Sub(p.resized) >= growPause {
		p.allowed, p.resized = min(2*p.allowed, p.limit), now
		p.handOut()
	}
}

// shrink limits the pool to half as many instances as are lent now, because these compete for the
// processors.
func (p *pool) shrink() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed, p.resized = max(min(p.allowed, p.live-len(p.idle))/2, 1), time.Now()
}

// closeIdle closes the idle instances.
func (p *pool) closeIdle() {
	p.mu.Lock()
	all := p.idle
	p.idle = nil
	p.live -= len(all)
	p.mu.Unlock()
	for _, i := range all {
		p.close(i.instance)
	}
}

// counts returns the numbers of idle instances, live instances and waiting callers.
func (p *pool) counts() (idle, live, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle), p.live, p.queued(laneSlow)
}
