package sandbox

import (
	"container/list"
	"runtime"
	"slices"
	"sync"
	"time"
)

// timeSlice is the time for which a call keeps its slot while other calls wait.
const timeSlice = time.Millisecond

// slots bounds the number of calls that compute at the same time, and shares the processors fairly:
// tenants with waiting calls take turns at the next free slot, and within a tenant the call that
// has waited longest gets it. It is safe for concurrent use by multiple goroutines.
type slots struct {
	limit func() int

	mu      sync.Mutex   // guards the fields below, and the queues
	used    int          // slots in use
	waiting []*slotQueue // queues of tenants with waiting calls; the first is next
}

// slotQueue is the queue of one tenant's calls that wait for a slot.
type slotQueue struct{ calls list.List } // elements are chan struct{}, closed when the call has a slot

// cpuSlots are the slots for all tenants. If there are two or more processors, one is left to the
// engine.
var cpuSlots = slots{limit: func() int { return max(runtime.GOMAXPROCS(0)-1, 1) }}

// acquire waits for a slot. It returns false if stop is closed first.
func (s *slots) acquire(q *slotQueue, stop <-chan struct{}) bool {
	s.mu.Lock()
	if len(s.waiting) == 0 && s.used < s.limit() {
		s.used++
		s.mu.Unlock()
		return true
	}
	granted := make(chan struct{})
	e := q.calls.PushBack(granted)
	if q.calls.Len() == 1 {
		s.waiting = append(s.waiting, q)
	}
	s.handOut() // the limit may have grown
	s.mu.Unlock()
	select {
	case <-granted:
		return true
	case <-stop:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if isClosed(granted) {
		s.used--
		s.handOut()
	} else if q.calls.Remove(e); q.calls.Len() == 0 {
		s.waiting = slices.DeleteFunc(s.waiting, func(other *slotQueue) bool { return other == q })
	}
	return false
}

// release returns a slot.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.handOut()
}

// handOut assigns free slots to waiting calls, one tenant after another.
func (s *slots) handOut() {
	for len(s.waiting) > 0 && s.used < s.limit() {
		q := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.used++
		close(q.calls.Remove(q.calls.Front()).(chan struct{}))
		if q.calls.Len() > 0 {
			s.waiting = append(s.waiting, q)
		}
	}
}
