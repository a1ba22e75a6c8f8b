package engine

import (
	"context"
	"sync"

	"github.com/sonde-probe/sonde/probe"
)

// Subscription hands out the statuses of probes whose verdict or instance has
// changed, the latest one for each probe, in the order in which they changed. A
// slow reader sees fewer changes and always the last; it never slows probing, and
// holds at most one entry for each probe.
type Subscription struct {
	engine *Engine
	wake   chan struct{} // capacity 1: queue is not empty

	mu    sync.Mutex
	dirty map[probe.ID]bool // is in queue
	queue []probe.ID
}

// Subscribe begins a Subscription; Close ends it. Every probe there is comes once
// at first, sorted by ID, so that a subscriber needs no snapshot of its own.
func (e *Engine) Subscribe() *Subscription {
	sub := &Subscription{engine: e, wake: make(chan struct{}, 1), dirty: map[probe.ID]bool{}}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range e.board.ids() {
		sub.mark(id)
	}
	e.subs[sub] = struct{}{}
	return sub
}

// Close ends the delivery. A Next that waits goes on waiting for its context.
func (s *Subscription) Close() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	delete(s.engine.subs, s)
}

// markAll notes for every subscriber that a probe has changed. It holds mu.
func (e *Engine) markAll(id probe.ID) {
	for sub := range e.subs {
		sub.mark(id)
	}
}

func (s *Subscription) mark(id probe.ID) {
	s.mu.Lock()
	if !s.dirty[id] {
		s.dirty[id] = true
		s.queue = append(s.queue, id)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next waits for a change and returns the probe's status as it is now, or the
// error of ctx. The status of a removed probe has only ID and Removed. It may be
// called by several goroutines at once; each change goes to one of them.
func (s *Subscription) Next(ctx context.Context) (Status, error) {
	for {
		if id, ok := s.take(); ok {
			st, exists := s.engine.Status(id)
			if !exists {
				st = Status{ID: id, Removed: true}
			}
			return st, nil
		}
		select {
		case <-ctx.Done():
			return Status{}, ctx.Err()
		case <-s.wake:
		}
	}
}

func (s *Subscription) take() (id probe.ID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return id, false
	}
	id, s.queue = s.queue[0], s.queue[1:]
	delete(s.dirty, id)
	if len(s.queue) > 0 { // for another reader, if there is one
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	return id, true
}
