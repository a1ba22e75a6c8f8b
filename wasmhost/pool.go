package wasmhost

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// pool hands out a bounded number of instances, with a reserve for callers that will give theirs
// back soon. It lends the most recently used instance first, so that the others become idle and
// can be closed. It is safe for concurrent use by multiple goroutines.
type pool struct {
	limit   int
	room    func() int // how many more instances there is memory for
	reclaim func()     // asks other pools for memory
	close   func(*sandbox.Instance)

	mu       sync.Mutex // guards all below
	allowed  int        // instances for now, at most limit
	resized  time.Time  // when allowed was changed
	idle     []idleInstance
	live     int                  // instances that are idle, lent or being started
	starting int                  // of them, being started
	waiting  [lanes]list.List     // of chan *sandbox.Instance
	average  [lanes]time.Duration // moving average of how long an instance is lent
}

type idleInstance struct {
	instance *sandbox.Instance
	since    time.Time
}

// lane is for how long a caller will probably keep an instance.
type lane uint8

// The lanes, in the order in which their callers get instances.
const (
	laneFast  lane = iota // a short time
	laneFirst             // a time that is not known
	laneSlow              // until its deadline
	lanes
)

const (
	// slowShare is the part of the instances, one in so many, that slow callers leave to
	// others: when most targets hang, the others must not wait for them. First callers
	// leave half of that to fast ones, since they may hang.
	slowShare = 4

	// maxStarting is how many instances may be started at the same time. Starts need
	// processors, and those that share them with many others are late.
	maxStarting = 4
)

// newPool returns a pool of at most limit instances, and at most room() more than there are,
// which it ends with close. While room is called the pool is locked. Reclaim is called before
// a caller waits: it makes room if other pools have more than is theirs.
func newPool(limit int, room func() int, reclaim func(), close func(*sandbox.Instance)) *pool {
	return &pool{limit: limit, allowed: limit, room: room, reclaim: reclaim, close: close}
}

// maxIdle is how long an unused instance is kept.
const maxIdle = time.Minute

// errBusy means that no instance will be available in time.
var errBusy = errors.New("all instances were busy for half of the attempt's time")

// get returns an idle instance, or nil when the caller is to start one, which needs a call
// of started. It waits while there is none for the caller's lane, for half of the time that
// ctx leaves: the other half is for the target, which would otherwise be blamed for being
// late. It does not wait when the queue is too long already. Each get without an error
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
	p.handOut() // there may be room now
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

// tryGet returns an instance, or nil if the caller is to start one; false if it must wait.
func (p *pool) tryGet(l lane) (i *sandbox.Instance, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queued(l) > 0 {
		return nil, false
	}
	return p.lend(l)
}

// halfOf returns a context that is done when half of the time has passed that ctx left at a time.
func halfOf(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, at.Add(end.Sub(at)/2))
}

// queued returns how many callers get an instance before a new one.
func (p *pool) queued(l lane) (n int) {
	for earlier := range l + 1 {
		n += p.waiting[earlier].Len()
	}
	return n
}

// capacity returns how many instances there may be now.
func (p *pool) capacity() int { return min(p.allowed, p.live+p.room()) }

// lend returns an instance for a caller, or nil if it is to start one. False means that
// there is none for its lane.
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

// handOut gives instances to callers that wait.
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

// started says that a start has ended, and the next one may begin. If it failed, a put of
// nil follows.
func (p *pool) started() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	p.handOut()
}

// maxQueueFactor: a caller is refused at once when its estimated wait exceeds this
// multiple of the time it has. Above 1, so that calls can get faster meanwhile.
const maxQueueFactor = 2

// queueTooLong reports whether a new caller would get an instance only long after its
// deadline. Callers that wait hold goroutines that other probes need.
func (p *pool) queueTooLong(ctx context.Context, l lane) bool {
	deadline, ok := ctx.Deadline()
	rounds := time.Duration(p.queued(l) / max(p.capacity(), 1))
	return ok && rounds*p.average[l] > maxQueueFactor*time.Until(deadline)
}

// observe records how long an instance was lent to a caller of a lane.
func (p *pool) observe(l lane, took time.Duration) {
	const weight = 8 // of the earlier observations
	p.mu.Lock()
	defer p.mu.Unlock()
	p.average[l] += (took - p.average[l]) / weight
}

// cancelWait removes a caller from the queue, and passes on what it was granted in the
// meantime.
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

// put returns an instance; nil means that it was closed, or not started.
func (p *pool) put(i *sandbox.Instance) {
	if old := p.keep(i); old != nil {
		p.close(old)
	}
}

// keep is put, except that it returns the instance to close, or nil.
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

// popExpired removes and returns the instance that was unused for longest, if that is
// longer than maxIdle.
func (p *pool) popExpired(now time.Time) *sandbox.Instance {
	if now.Sub(p.idle[0].since) < maxIdle {
		return nil
	}
	return p.popOldest()
}

// popOldest removes and returns the instance that was unused for longest.
func (p *pool) popOldest() *sandbox.Instance {
	oldest := p.idle[0].instance
	p.idle[0], p.idle = idleInstance{}, p.idle[1:]
	p.live--
	return oldest
}

// closeOldest closes the instance that was unused for longest. It returns false if none is idle.
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

// growPause is how long after shrink, and after itself, grow does nothing. Otherwise callers that
// give instances back at once would undo what those show that take the processors.
const growPause = time.Second

// grow doubles the number of instances that are allowed, up to the limit, if shrink has
// lowered it.
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

// shrink allows half as many instances as are lent now: they take the processors from each
// other.
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

// counts returns the number of idle instances, of all instances, and of waiting callers.
func (p *pool) counts() (idle, live, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle), p.live, p.queued(laneSlow)
}
