package schedule

// Lane is the kind of resource that an attempt in flight occupies.
type Lane uint8

const (
	NonBlocking Lane = iota // a descriptor and a few hundred bytes
	Fast                    // a goroutine, for a short time
	First                   // a goroutine, for an unknown time: no attempt of the probe has finished yet
	Slow                    // a goroutine, probably until its timeout
	lanes
)

const (
	// NonBlockingPerWorker is the number of non-blocking attempts that may be in flight for each attempt that needs a goroutine,
	// since they are cheaper by that factor.
	NonBlockingPerWorker = 16

	// Slow attempts leave 1/slowShare of the goroutines to others: if half of the targets hang, the other half must not wait for
	// them. First attempts leave half of that share to fast ones, since they may hang as well.
	slowShare = 4
)

// limiter caps concurrent attempts and queues the rest, one FIFO per lane.
type limiter[A any] struct {
	concurrency int                       // limit of workers
	workers     int                       // in flight in all other lanes
	nonBlocking int                       // in flight in the lane NonBlocking
	queues      [lanes]queue[queuedProbe] // due probes
	handoffs    [lanes]queue[A]           // attempts that turned out to need a goroutine
}

// queuedProbe is a probe's place in a queue. The place is void if the probe's entry has another ticket.
type queuedProbe struct{ key, ticket uint32 }

// admits reports whether an attempt in lane l may start now.
func (c *limiter[A]) admits(l Lane) bool {
	reserve := c.concurrency / slowShare
	switch l {
	case NonBlocking:
		return c.nonBlocking < c.concurrency*NonBlockingPerWorker
	case First:
		return c.workers < c.concurrency-(reserve+1)/2
	case Slow:
		return c.workers < c.concurrency-reserve
	}
	return c.workers < c.concurrency
}

func (c *limiter[A]) take(l Lane)    { c.count(l, 1) }
func (c *limiter[A]) release(l Lane) { c.count(l, -1) }

func (c *limiter[A]) count(l Lane, n int) {
	if l == NonBlocking {
		c.nonBlocking += n
	} else {
		c.workers += n
	}
}

// queued returns the number of waiting attempts.
func (c *limiter[A]) queued() int {
	n := 0
	for l := range lanes {
		n += c.queues[l].len() + c.handoffs[l].len()
	}
	return n
}

// queue is a FIFO.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(item T) {
	if q.head > 64 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

func (q *queue[T]) pop() (item T, ok bool) {
	if q.len() == 0 {
		return item, false
	}
	item, q.items[q.head] = q.items[q.head], item
	q.head++
	return item, true
}
