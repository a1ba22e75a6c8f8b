package engine

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Subscription delivers the status of each probe whose verdict or instance has
// changed, that attempts have decided for the first time, or that was put on hold or is no longer, in the order in which they changed. If a probe changes again before its
// status is delivered, only the latest status is: a slow reader sees fewer changes,
// but always the last one. It never slows probing. Its queue holds at most one entry for
// each probe that exists, and for each removed one of which a status was delivered.
type Subscription struct {
	engine *Engine
	status func(probe.ID) (Status, bool) // of a probe now
	other  *Subscription                 // of the other engine of a Union, with the same signal; nil for none
	wake   wake.Signal                   // queue is not empty

	mu       sync.Mutex        // guards the queue: all below; registry.mu is taken while it is held
	existing sweep             // those that existed at Subscribe, to be delivered first
	pending  map[probe.ID]bool // to be delivered; true: the subscriber knows the ID from an earlier status
	queue    []probe.ID        // pending in order, and some that were dropped from it
	passed   probe.ID          // the last that existing has delivered
}

// event is what has happened to a probe.
type event uint8

const (
	probeAdded event = iota
	probeChanged
	probeRemoved
)

// Subscribe starts a Subscription; Close ends it. Next returns every existing probe
// once at first, sorted by ID, so that a subscriber needs no snapshot of its own.
func (e *Engine) Subscribe() *Subscription { return e.subscribe(nil, false) }

// SubscribeMemories starts a Subscription that also delivers a probe when a part of its
// Memory (see Snapshot) has changed that later verdicts depend on: its run of equal
// outcomes, while that is below its threshold. A probe whose attempts confirm its
// verdict is not delivered.
func (e *Engine) SubscribeMemories() *Subscription { return e.subscribe(nil, true) }

func (e *Engine) subscribe(beside *Subscription, memories bool) *Subscription {
	sub, sc := newSubscription(e, beside), e.scheduler
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.subscribers.probes[sub] = struct{}{}
	if memories {
		sc.subscribers.memories[sub] = struct{}{}
	}
	return sub
}

// newSubscription returns a Subscription that is the other one of beside, or alone if that is nil.
func newSubscription(e *Engine, beside *Subscription) *Subscription {
	s := &Subscription{engine: e, status: e.Status, pending: map[probe.ID]bool{}}
	if beside == nil {
		s.wake = wake.New()
		return s
	}
	s.wake, beside.other = beside.wake, s
	return s
}

// TargetSubscription delivers the status of each target whose state, readiness, labels,
// address or instance have changed, as a Subscription does for probes.
type TargetSubscription struct {
	changes *Subscription
	target  func(name string) (TargetStatus, bool) // now
}

// SubscribeTargets starts a TargetSubscription; Close ends it. Next returns every existing
// target once at first, sorted by name.
func (e *Engine) SubscribeTargets() *TargetSubscription {
	return &TargetSubscription{e.subscribeTargets(nil), e.Target}
}

func (e *Engine) subscribeTargets(beside *Subscription) *Subscription {
	sub, sc := newSubscription(e, beside), e.scheduler
	sub.existing.targets = true
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.subscribers.targets[sub] = struct{}{}
	return sub
}

// Next waits for a change and returns the target's status as it is now, or the error of ctx.
// The status of a removed target has only Target and Removed. It is safe for concurrent use by
// multiple goroutines; each change goes to one of them.
func (s *TargetSubscription) Next(ctx context.Context) (TargetStatus, error) {
	id, err := s.changes.next(ctx)
	if err != nil {
		return TargetStatus{}, err
	}
	return s.status(id), nil
}

// Poll is Next without waiting: it returns false if nothing has changed. Then each target
// that existed at SubscribeTargets was returned, and so was all that Apply, Change and
// Report had changed before the call.
func (s *TargetSubscription) Poll() (st TargetStatus, ok bool) {
	id, ok := s.changes.take()
	if !ok {
		return st, false
	}
	return s.status(id), true
}

// Changed returns a channel from which can be received when something has changed since
// Poll has returned false. It is never closed.
func (s *TargetSubscription) Changed() <-chan struct{} { return s.changes.wake }

func (s *TargetSubscription) status(id probe.ID) TargetStatus {
	st, exists := s.target(id.Target)
	if !exists {
		st = TargetStatus{Target: id.Target, Removed: true}
	}
	return st
}

// Close ends the subscription. A call of Next that waits returns when its context is done.
func (s *TargetSubscription) Close() { s.changes.Close() }

// sweep goes once through the probes that exist, sorted by ID, without a list of them
// all; or through the targets, as IDs without a kind.
type sweep struct {
	targets bool
	after   string // the last target that was read
	ids     []probe.ID
	ended   bool
}

// next returns the next probe, or false after the last.
func (w *sweep) next(r *registry) (id probe.ID, ok bool) {
	for len(w.ids) == 0 && !w.ended {
		list := r.next(&r.byName, make([]listed, 0, walkChunk), w.after)
		for _, t := range list {
			w.after = t.target.name
			if w.targets {
				w.ids = append(w.ids, probe.ID{Target: t.target.name})
				continue
			}
			for _, s := range t.slots {
				w.ids = append(w.ids, s.id())
			}
		}
		w.ended = len(list) == 0
	}
	if w.ended {
		return id, false
	}
	id, w.ids = w.ids[0], w.ids[1:]
	return id, true
}

// Close ends the subscription. A call of Next that waits returns when its context is
// done.
func (s *Subscription) Close() {
	if s.other != nil {
		s.other.Close()
	}
	sc := s.engine.scheduler
	sc.mu.Lock()
	defer sc.mu.Unlock()
	delete(sc.subscribers.probes, s)
	delete(sc.subscribers.memories, s)
	delete(sc.subscribers.targets, s)
}

// subscribers are the subscriptions that are not closed. scheduler.mu guards them.
type subscribers struct {
	probes   map[*Subscription]struct{}
	memories map[*Subscription]struct{} // those of probes that deliver changes of memories too
	targets  map[*Subscription]struct{}
}

func newSubscribers() subscribers {
	return subscribers{map[*Subscription]struct{}{}, map[*Subscription]struct{}{}, map[*Subscription]struct{}{}}
}

// notifyProbe notifies the subscribers to probes of an event of one.
func (l *subscribers) notifyProbe(id probe.ID, ev event) {
	for sub := range l.probes {
		sub.mark(id, ev)
	}
}

// notifyTarget notifies the subscribers to targets of an event of one.
func (l *subscribers) notifyTarget(name string, ev event) {
	for sub := range l.targets {
		sub.mark(probe.ID{Target: name}, ev)
	}
}

// notifyMemory notifies the subscribers to memories that the one of a probe has changed.
func (l *subscribers) notifyMemory(id probe.ID) {
	for sub := range l.memories {
		sub.mark(id, probeChanged)
	}
}

// mark queues a probe. A removed one that the subscriber does not know is dropped.
func (s *Subscription) mark(id probe.ID, ev event) {
	s.mu.Lock()
	known, queued := s.pending[id]
	if !queued {
		known = ev != probeAdded && (s.existing.ended || id.Compare(s.passed) <= 0)
	}
	switch {
	case ev == probeRemoved && !known:
		delete(s.pending, id)
		s.compact()
	case !queued:
		s.pending[id] = known
		s.queue = append(s.queue, id)
	}
	s.mu.Unlock()
	s.wake.Set()
}

// compact removes the dropped entries of the queue when they are most of it.
func (s *Subscription) compact() {
	if len(s.queue) < 2*len(s.pending)+64 {
		return
	}
	seen := make(map[probe.ID]bool, len(s.pending))
	queue := make([]probe.ID, 0, len(s.pending))
	for _, id := range s.queue {
		if _, queued := s.pending[id]; queued && !seen[id] {
			seen[id] = true
			queue = append(queue, id)
		}
	}
	s.queue = queue
}

// Next waits for a change and returns the probe's status as it is now, or the
// error of ctx. The status of a removed probe has only ID and Removed. It is
// safe for concurrent use by multiple goroutines; each change goes to one of
// them.
func (s *Subscription) Next(ctx context.Context) (Status, error) {
	id, err := s.next(ctx)
	if err != nil {
		return Status{}, err
	}
	st, exists := s.status(id)
	if !exists {
		st = Status{ID: id, Removed: true}
	}
	return st, nil
}

// next waits for a change, and returns what has changed.
func (s *Subscription) next(ctx context.Context) (probe.ID, error) {
	for {
		if id, ok := s.take(); ok {
			return id, nil
		}
		select {
		case <-ctx.Done():
			return probe.ID{}, ctx.Err()
		case <-s.wake:
		}
	}
}

// take returns what has changed, if anything has. Neither engine of a Union keeps a slow reader from the changes of the other.
func (s *Subscription) take() (id probe.ID, ok bool) {
	if s.other == nil {
		return s.takeOwn()
	}
	first, second := s, s.other
	if rand.IntN(2) == 0 {
		first, second = second, first
	}
	if id, ok = first.takeOwn(); !ok {
		id, ok = second.takeOwn()
	}
	if ok { // for another reader, if there is one
		s.wake.Set()
	}
	return id, ok
}

func (s *Subscription) takeOwn() (id probe.ID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok = s.existing.next(s.engine.registry); ok {
		s.passed = id
	}
	delete(s.pending, id)
	for len(s.queue) > 0 && !ok {
		id, s.queue = s.queue[0], s.queue[1:]
		_, ok = s.pending[id]
		delete(s.pending, id)
	}
	if len(s.pending) > 0 { // for another reader, if there is one
		s.wake.Set()
	}
	return id, ok
}
