package engine

import "github.com/sonde-probe/sonde/probe"

// lane is what an attempt needs while it is under way.
type lane uint8

const (
	stepped lane = iota // the loop makes it: it needs a descriptor and some hundred bytes
	quick               // it needs a goroutine
	slow                // likewise, and it may use its time up in vain, as the last one did
	lanes
)

const (
	// stepsPerWorker is how many attempts made in steps may be under way for each
	// that needs a goroutine: they cost so much less.
	stepsPerWorker = 16

	// slowShare is the part of the goroutines, one in so many, that slow attempts
	// leave to the others: when half of the targets hang, the other half must not
	// wait for them. First attempts are slow: nobody knows what they will meet.
	slowShare = 4
)

// lane returns which lane a probe's attempts are in.
func (s *slot) lane() lane {
	if s.spec.stepper != nil {
		return stepped
	}
	return s.workerLane()
}

// workerLane returns which lane they are in when they need a goroutine.
func (s *slot) workerLane() lane {
	if s.prompt {
		return quick
	}
	return slow
}

// tookLong notes whether an attempt used its time up in vain.
func (s *slot) tookLong(res *probe.Result) {
	passed := res.Outcome == probe.Success || res.Outcome == probe.Warning
	s.prompt = passed || res.Took < s.spec.rule.Timeout/2
}

// crowd bounds the attempts under way, and holds those that wait for one to end.
type crowd struct {
	concurrency int // of goroutines
	workers     int // under way in the lanes quick and slow
	steppers    int // under way in the lane stepped
	queues      [lanes]queue[*slot]
	blocked     [lanes]queue[*flight] // could not be made in steps, and need a goroutine
}

// admits reports whether an attempt in a lane may begin now.
func (c *crowd) admits(l lane) bool {
	switch l {
	case stepped:
		return c.steppers < c.concurrency*stepsPerWorker
	case slow:
		return c.workers < c.concurrency-c.concurrency/slowShare
	}
	return c.workers < c.concurrency
}

func (c *crowd) enter(l lane) { c.count(l, 1) }
func (c *crowd) leave(l lane) { c.count(l, -1) }

func (c *crowd) count(l lane, n int) {
	if l == stepped {
		c.steppers += n
	} else {
		c.workers += n
	}
}

// queued returns how many attempts wait.
func (c *crowd) queued() int {
	n := 0
	for i := range c.queues {
		n += c.queues[i].len() + c.blocked[i].len()
	}
	return n
}

// queue holds what waits, in the order in which it came.
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
