package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// loopChunk is how many due probes are started before others may have the lock.
const loopChunk = 256

// Run probes until ctx is done. Then it cancels the attempts under way, drops
// their answers, and returns nil when every goroutine that it started has ended.
// A second call returns an error at once.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	var workers sync.WaitGroup
	e.loop(ctx, &workers)
	workers.Wait()
	e.applying.Lock()
	defer e.applying.Unlock()
	e.closers.close()
	return nil
}

func (e *Engine) begin(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.run != nil {
		return errors.New("engine: Run was called before")
	}
	e.run, e.began = ctx, e.clock.now()
	return nil
}

// loop starts what is due and sleeps until more is.
func (e *Engine) loop(ctx context.Context, workers *sync.WaitGroup) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		due, ok := e.turns(workers)
		timer.Stop()
		if ok {
			timer.Reset(e.clock.until(due))
		}
		select {
		case <-ctx.Done():
		case <-e.wake:
		case <-timer.C:
		}
	}
}

// turns starts everything that is due, and returns when the next probe will be.
func (e *Engine) turns(workers *sync.WaitGroup) (due int64, ok bool) {
	for {
		e.mu.Lock()
		e.asleep = 0
		done := e.someTurns(workers)
		if done {
			if due, ok = e.heap.Next(); ok {
				e.asleep = due
			} else {
				e.asleep = 1<<63 - 1
			}
		}
		e.unlock()
		if done {
			return due, ok
		}
	}
}

// someTurns starts some of what is due, and reports whether it was all.
func (e *Engine) someTurns(workers *sync.WaitGroup) bool {
	now := e.clock.now()
	for range loopChunk {
		key, due, ok := e.heap.Pop(now)
		if !ok {
			return true
		}
		if f := e.dispatch(e.slots[key], due, now); f != nil {
			workers.Go(func() { e.work(f) })
		}
	}
	return false
}

// rouse wakes the loop if it would oversleep.
func (e *Engine) rouse() {
	if due, ok := e.heap.Next(); ok && due < e.asleep {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// schedule makes s due at its turn.
func (e *Engine) schedule(s *slot, at int64) {
	s.soon, s.paced = false, false
	e.due(s, at)
}

// scheduleSoon makes s due out of turn, as an instance's first attempt is.
func (e *Engine) scheduleSoon(s *slot, at int64) {
	s.soon, s.paced = true, false
	e.due(s, at)
}

func (e *Engine) due(s *slot, at int64) {
	e.heap.Set(s.key, at)
	s.mu.Lock()
	s.record.next = at
	s.mu.Unlock()
}

// unschedule takes s off the heap.
func (e *Engine) unschedule(s *slot) {
	e.heap.Remove(s.key)
	s.mu.Lock()
	s.record.next = 0
	s.mu.Unlock()
}

// fly makes f, or with nil none, the attempt of s that counts.
func (s *slot) fly(f *flight) {
	s.mu.Lock()
	s.flight = f
	s.record.flying = f != nil
	s.mu.Unlock()
}

// dispatch begins the attempt of a probe that is due, or lets it wait for the
// pace or for a worker.
func (e *Engine) dispatch(s *slot, due, now int64) *flight {
	if s.soon && !s.paced {
		if at := e.pacedStart(s, now); at > now {
			e.due(s, at)
			return nil
		}
	}
	s.due = max(due, e.began)
	if s.queued {
		return nil
	}
	if e.inFlight >= e.conf.Concurrency {
		s.queued = true
		e.waiting.push(s)
		return nil
	}
	return e.launch(s, now)
}

// pacedStart returns when an attempt out of turn may start: when the pace allows,
// or at the probe's turn if that comes first.
func (e *Engine) pacedStart(s *slot, now int64) int64 {
	s.paced = true
	at := e.pace.slot(now)
	if own := s.turn(now); own <= at {
		return own
	}
	e.pace.take(now)
	return at
}

// launch begins the attempt of a probe whose turn has come, if it still may be
// attempted. The next turn is at least half a period away, so that an attempt out
// of turn is not followed by another at once.
func (e *Engine) launch(s *slot, now int64) *flight {
	t := s.target
	e.unschedule(s)
	next := e.step(s, verdict.Event{Type: verdict.Looked, Instance: t.life(&e.clock), Started: t.hasStarted()}, now)
	if next.Do != verdict.Attempt {
		if !next.At.IsZero() {
			e.scheduleSoon(s, e.clock.at(next.At))
		}
		return nil
	}
	e.counters.lateness.add(time.Duration(now - s.due))
	if late := (now - s.due) / int64(s.spec.rule.Period); late > 0 {
		e.counters.late += uint64(late)
	}
	s.soon, s.paced = false, false
	e.inFlight++
	ctx, cancel := context.WithCancel(e.run)
	f := &flight{slot: s, probe: s.probe(), instance: t.instance.id, next: s.nextTurn(now), ctx: ctx, cancel: cancel}
	if _, ok := f.probe.Handler.(probe.WakingHandler); ok {
		f.wake = func() { e.woken(s) }
	}
	s.fly(f)
	return f
}

// relaunch begins the attempt that has waited longest for a worker.
func (e *Engine) relaunch(now int64) *flight {
	for e.inFlight < e.conf.Concurrency {
		s := e.waiting.pop()
		if s == nil {
			return nil
		}
		s.queued = false
		if s.removed || s.flight != nil {
			continue
		}
		if f := e.launch(s, now); f != nil {
			return f
		}
	}
	return nil
}
