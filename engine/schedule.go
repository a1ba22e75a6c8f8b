package engine

import (
	"context"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// rouse wakes the loop if it would oversleep.
func (e *Engine) rouse() {
	if _, due, ok := e.heap.First(); ok && due < e.asleep {
		e.rouseNow()
	}
}

// rouseNow wakes the loop if it sleeps.
func (e *Engine) rouseNow() {
	if e.asleep == 0 {
		return
	}
	e.asleep = 0
	if e.polling != nil {
		e.polling.Wake()
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
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
// pace or for another to end.
func (e *Engine) dispatch(s *slot, due, now int64) *flight {
	if !s.spec.isReady() {
		e.prepare(s, now)
		return nil
	}
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
	if lane := s.lane(); !e.crowd.admits(lane) {
		s.queued = true
		e.crowd.queues[lane].push(s)
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
	late := max(0, now-s.due)
	if s.shed = e.sheds(s, late); s.shed {
		e.counters.shed++
		e.schedule(s, s.nextTurn(now))
		return nil
	}
	e.counters.lateness.add(time.Duration(late))
	e.counters.late += uint64(late / int64(s.spec.rule.Period))
	s.soon, s.paced = false, false
	f := e.newFlight(s.spec.stepper)
	f.lane = s.lane()
	e.crowd.enter(f.lane)
	f.slot, f.probe, f.instance, f.next = s, s.probe(), t.instance.id, s.nextTurn(max(now, s.due))
	if f.stepper == nil {
		e.bind(f)
	}
	s.fly(f)
	return f
}

// preparePeriod is how often a handler that is not ready is looked at.
const preparePeriod = 100 * time.Millisecond

// prepare lets a probe rest whose handler is not ready.
func (e *Engine) prepare(s *slot, now int64) {
	s.mu.Lock()
	s.record.rest = verdict.Preparing
	s.mu.Unlock()
	e.scheduleSoon(s, now+int64(preparePeriod))
}

// shedAfter is how late an engine must be to give turns of passing probes up.
const shedAfter = int64(100 * time.Millisecond)

// sheds reports whether a probe gives its turn up, so that an engine which has too
// much to do stays in time for others. It must pass, and never gives up two turns
// in a row: its period is doubled at most.
func (e *Engine) sheds(s *slot, late int64) bool {
	st := &s.record.state
	return late > shedAfter && !s.shed && !s.soon &&
		s.kind != probe.Startup && st.Verdict == probe.Passing && st.Last != probe.Failure
}

// newFlight returns a flight that the loop makes, or, without a stepper, that a
// goroutine makes.
func (e *Engine) newFlight(stepper nonblock.Stepper) *flight {
	n := len(e.spare)
	if stepper == nil || n == 0 {
		return &flight{stepper: stepper}
	}
	f := e.spare[n-1]
	e.spare[n-1] = nil
	e.spare = e.spare[:n-1]
	f.stepper = stepper
	return f
}

// bind gives a flight what its goroutine needs.
func (e *Engine) bind(f *flight) {
	f.stepper = nil
	f.ctx, f.cancel = context.WithCancel(e.run)
	if _, ok := f.probe.Handler.(probe.WakingHandler); ok {
		s := f.slot
		f.wake = func() { e.woken(s) }
	}
}

// relaunch begins the attempt that has waited longest for a goroutine.
func (e *Engine) relaunch(now int64) *flight {
	for _, l := range [...]lane{quick, slow} {
		if f := e.unblock(l); f != nil {
			return f
		}
		if f := e.relaunchIn(l, now); f != nil {
			return f
		}
	}
	return nil
}

// unblock begins an attempt that could not be made in steps.
func (e *Engine) unblock(l lane) *flight {
	for e.crowd.admits(l) {
		f, ok := e.crowd.blocked[l].pop()
		switch {
		case !ok:
			return nil
		case f.stopped:
			e.counters.dropped++
		default:
			e.crowd.enter(l)
			e.bind(f)
			return f
		}
	}
	return nil
}

// relaunchIn begins the attempt that has waited longest in a lane.
func (e *Engine) relaunchIn(l lane, now int64) *flight {
	for e.crowd.admits(l) {
		s, ok := e.crowd.queues[l].pop()
		if !ok {
			return nil
		}
		s.queued = false
		switch {
		case s.removed || s.flight != nil:
		case s.lane() != l: // its handler was replaced meanwhile
			e.due(s, now)
		default:
			if f := e.launch(s, now); f != nil {
				return f
			}
		}
	}
	return nil
}
