package engine

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// Subscription delivers the status of each probe when its verdict or instance changes, when attempts first decide its verdict, or
// when it is put on hold or released, in the order of the changes. If a probe changes again before its status is delivered, only
// the latest status is delivered: a slow reader sees fewer changes, but always the last one. A Subscription never slows probing.
// Its queue holds at most one entry for each existing probe, and for each removed probe of which a status was delivered.
type Subscription struct {
	engine *Engine
	status func(probe.ID) (Status, bool) // current status of a probe
	other  *Subscription                 // subscription to the other engine of a Union, with the same signal; nil if there is none
	wake   wake.Signal                   // set when the queue is not empty

	mu       sync.Mutex        // guards the queue: all below; registry.mu is taken while it is held
	existing sweep             // probes that existed at Subscribe, delivered first
	pending  map[probe.ID]bool // to be delivered; true if the subscriber knows the ID from an earlier status
	queue    []probe.ID        // pending in order, and some entries that were dropped
	passed   probe.ID          // last probe that existing has delivered
}

// event is a change to a probe.
type event uint8

const (
	probeAdded event = iota
	probeChanged
	probeRemoved
)

// Subscribe creates a Subscription; Close ends it. Next first returns each existing probe once, sorted by ID, so that a
// subscriber needs no separate snapshot.
func (e *Engine) Subscribe() *Subscription { return e.subscribe(nil, false) }

// SubscribeMemories creates a Subscription that also delivers a probe when the part of its Memory (see Snapshot) that affects
// later verdicts has changed: its run of equal outcomes, while that is below the threshold. A probe whose attempts merely confirm
// its verdict is not delivered.
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

// newSubscription returns a Subscription. If beside is not nil, it becomes beside.other.
func newSubscription(e *Engine, beside *Subscription) *Subscription {
	s := &Subscription{engine: e, status: e.Status, pending: map[probe.ID]bool{}}
	if beside == nil {
		s.wake = wake.New()
		return s
	}
	s.wake, beside.other = beside.wake, s
	return s
}

// TargetSubscription delivers the status of each target whose state, readiness, labels, address or instance has changed, as a
// Subscription does for probes.
type TargetSubscription struct {
	changes *Subscription
	target  func(name string) (TargetStatus, bool) // current status of a target
}

// SubscribeTargets creates a TargetSubscription; Close ends it. Next first returns each existing target once, sorted by name.
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

// Next waits for a change and returns the target's current status, or the error of ctx. The status of a removed target has only
// Target and Removed set. It is safe for concurrent use by multiple goroutines; each change is delivered to one of them.
func (s *TargetSubscription) Next(ctx context.Context) (TargetStatus, error) {
	id, err := s.changes.next(ctx)
	if err != nil {
		return TargetStatus{}, err
	}
	return s.status(id), nil
}

// Poll is Next without waiting: it returns false if nothing has changed. In that case, all targets that existed at
// SubscribeTargets, and all changes made by Apply, Change and Report before the call, have been returned.
func (s *TargetSubscription) Poll() (st TargetStatus, ok bool) {
	id, ok := s.changes.take()
	if !ok {
		return st, false
	}
	return s.status(id), true
}

// Changed returns a channel that receives a value when something has changed after Poll returned false. It is never closed.
func (s *TargetSubscription) Changed() <-chan struct{} { return s.changes.wake }

func (s *TargetSubscription) status(id probe.ID) TargetStatus {
	st, exists := s.target(id.Target)
	if !exists {
		st = TargetStatus{Target: id.Target, Removed: true}
	}
	return st
}

// Close ends the subscription. A blocked Next returns only when its context is done.
func (s *TargetSubscription) Close() { s.changes.Close() }

// sweep iterates once over the existing probes, sorted by ID, without storing a list of all of them, or over the targets, as IDs
// without a kind.
type sweep struct {
	targets bool
	after   string // last target that was read
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

// Close ends the subscription. A blocked Next returns only when its context is done.
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

// subscribers are the open subscriptions. scheduler.mu guards them.
type subscribers struct {
	probes   map[*Subscription]struct{}
	memories map[*Subscription]struct{} // those in probes that also deliver changes of memories
	targets  map[*Subscription]struct{}
}

func newSubscribers() subscribers {
	return subscribers{map[*Subscription]struct{}{}, map[*Subscription]struct{}{}, map[*Subscription]struct{}{}}
}

// notifyProbe notifies the subscribers to probes of a change to a probe.
func (l *subscribers) notifyProbe(id probe.ID, ev event) {
	for sub := range l.probes {
		sub.mark(id, ev)
	}
}

// notifyTarget notifies the subscribers to targets of a change to a target.
func (l *subscribers) notifyTarget(name string, ev event) {
	for sub := range l.targets {
		sub.mark(probe.ID{Target: name}, ev)
	}
}

// notifyMemory notifies the subscribers to memories of a change to the memory of a probe.
func (l *subscribers) notifyMemory(id probe.ID) {
	for sub := range l.memories {
		sub.mark(id, probeChanged)
	}
}

// mark queues a probe, or drops it if it was removed and the subscriber does not know it.
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

// compact removes the dropped entries of the queue if they are the majority.
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

// Next waits for a change and returns the probe's current status, or the error of ctx. The status of a removed probe has only ID
// and Removed set. It is safe for concurrent use by multiple goroutines; each change is delivered to one of them.
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

// next waits for a change, and returns the ID of the changed probe or target.
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

// take returns the ID of a changed probe or target, if there is one. For a Union, it picks an engine at random, so that neither
// engine starves the other.
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
	if ok { // wakes another reader, if any
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
	if len(s.pending) > 0 { // wakes another reader, if any
		s.wake.Set()
	}
	return id, ok
}
