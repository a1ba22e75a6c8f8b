package engine

import (
	"context"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// slot is one probe that exists.
type slot struct {
	id     probe.ID
	key    uint32 // in the heap
	target *target

	// The schedule, guarded by Engine.mu.
	due    int64   // when the attempt under way, or the next, was or is due
	next   int64   // the turn after the attempt under way
	soon   bool    // the next attempt is out of turn, and paced
	paced  bool    // due is the time that the pace has given
	again  bool    // another attempt was asked for while one was under way
	queued bool    // in Engine.waiting
	flight *flight // the attempt under way whose answer counts, or nil

	mu      sync.Mutex // guards what follows, which is written with Engine.mu held too
	probe   probe.Probe
	record  record
	removed bool
	gauge   *Gauge     // nil until somebody watches
	took    *histogram // durations of successes, in the kubelet's compatibility only
}

// record is what is published about a probe.
type record struct {
	state    verdict.State
	rest     verdict.Rest
	since    time.Time
	changes  uint64
	result   probe.Result
	resultAt time.Time
	attempts [4]uint64
	next     int64 // when the next attempt is due; 0 when none is
	flying   bool  // an attempt is under way
}

// flight is an attempt under way. It holds all the attempt needs, so that the
// slot can go on to another probe or instance without waiting for it.
type flight struct {
	slot     *slot
	probe    probe.Probe
	instance probe.Instance
	ctx      context.Context
	cancel   context.CancelFunc
	wake     func() // for a handler that wakes its probe; else nil
}

// target is what is known about a target's instance.
type target struct {
	name  string
	slots []*slot // sorted by ID; guarded by Engine.board, replaced and never written

	mu       sync.Mutex // guards what follows, which is written with Engine.mu held too
	instance probe.Instance
	started  string // the ID of the instance that has started
}

// hasStarted reports whether the target's instance runs and has started.
func (t *target) hasStarted() bool {
	return t.instance.Phase == probe.Running && t.started == t.instance.ID
}

// start marks a running instance as started once all its startup probes have
// passed, and reports whether that is news. An instance that has started stays
// so, whatever probes it gets later; but one without any probe may have been
// reported before its probes were applied.
func (t *target) start() bool {
	if t.instance.Phase != probe.Running || t.started == t.instance.ID || len(t.slots) == 0 {
		return false
	}
	for _, s := range t.slots {
		st := s.record.state
		if s.id.Kind == probe.Startup && (st.Instance != t.instance.ID || st.Verdict != probe.Passing) {
			return false
		}
	}
	t.mu.Lock()
	t.started = t.instance.ID
	t.mu.Unlock()
	return true
}

// queue holds slots in the order in which they came.
type queue struct {
	slots []*slot
	head  int
}

func (q *queue) len() int { return len(q.slots) - q.head }

func (q *queue) push(s *slot) {
	if q.head > 64 && q.head > len(q.slots)/2 {
		n := copy(q.slots, q.slots[q.head:])
		clear(q.slots[n:])
		q.slots, q.head = q.slots[:n], 0
	}
	q.slots = append(q.slots, s)
}

func (q *queue) pop() *slot {
	if q.len() == 0 {
		return nil
	}
	s := q.slots[q.head]
	q.slots[q.head] = nil
	q.head++
	return s
}
