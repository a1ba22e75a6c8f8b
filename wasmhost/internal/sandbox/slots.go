package sandbox

import (
	"container/list"
	"runtime"
	"slices"
	"sync"
	"time"
)

// timeSlice is how long a call keeps its slot while others wait for one.
const timeSlice = time.Millisecond

// slots bounds how many calls compute at the same time, and shares the processors fairly
// among tenants: those whose calls wait get the next free slot in turn, and within a tenant
// the call that has waited longest. It is safe for concurrent use by multiple goroutines.
type slots struct {
	limit func() int

	mu      sync.Mutex   // guards what follows, and the queues
	used    int          // by calls that compute
	waiting []*slotQueue // of tenants with calls that wait; the first one is next
}

// slotQueue has the calls of one tenant that wait for a slot.
type slotQueue struct{ calls list.List } // of chan struct{}, closed when the call has a slot

// cpuSlots are the slots of all tenants. One processor is left for the engine, where there are
// two or more.
var cpuSlots = slots{limit: func() int { return max(runtime.GOMAXPROCS(0)-1, 1) }}

// acquire waits for a slot, and returns false when stop is closed before it has one.
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

// release gives a slot back.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.handOut()
}

// handOut gives free slots to calls that wait, one tenant after the other.
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
