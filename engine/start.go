package engine

import (
	"context"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// drop cancels a probe's attempt in flight, and discards its result.
func (sc *scheduler) drop(s *slot) {
	a := s.inflight
	if a == nil {
		return
	}
	s.setInflight(nil)
	sc.timetable.schedule.Drop(s.key)
	sc.isolation.withdraw(s)
	if a.unsettled {
		sc.isolation.unsettled.Remove(s.key)
		sc.counters.dropped++
		return
	}
	if a.cancel != nil {
		a.cancel()
		return
	}
	a.canceled = true
	sc.canceled = append(sc.canceled, a)
	sc.sleep.wakeNow()
}

// preparePeriod is the interval at which the engine checks whether a handler is ready.
const preparePeriod = 100 * time.Millisecond

// tryStart starts the attempt of a due probe, unless its handler is not ready, or the attempt has to wait for the pacer or for a
// free slot in its lane.
func (sc *scheduler) tryStart(s *slot, due, now int64) *attempt {
	if sp := s.spec.Load(); sp.ready != nil {
		if !sp.isReady() {
			s.mu.Lock()
			s.waitReason = verdict.Preparing
			s.mu.Unlock()
			sc.timetable.extra(s, now+int64(preparePeriod))
			return nil
		}
		if s.currentWaitReason() == verdict.Preparing {
			sc.reconcile(s)
			return nil
		}
	}
	start, at := sc.timetable.schedule.Admit(s.key, due, now)
	if start {
		return sc.start(s, now)
	}
	if at != 0 {
		s.setNext(at)
	}
	return nil
}

// start starts the attempt of an admitted probe, if its state still allows one.
func (sc *scheduler) start(s *slot, now int64) *attempt {
	next := sc.look(s, now)
	if next.WaitReason != verdict.NotWaiting {
		sc.timetable.wait(s, next.At)
		return nil
	}
	failing := next.state.Last == probe.Failure && next.state.Run > 0
	st, ok := sc.timetable.schedule.Start(s.key, now, mayShed(s.kind, &next.state) && !s.isOverdue(sc.clock, now), failing)
	if !ok {
		s.setNext(st.Next)
		return nil
	}
	sc.counters.lateness.add(st.Lateness)
	sp := s.spec.Load()
	sc.tick = min(sc.tick, tickOf(&sp.rule))
	a := sc.recycled.take(sp)
	in := s.target.current()
	a.slot, a.instance, a.next, a.lane, a.counts = s, in.id, st.Next, st.Lane, st.Counts
	a.Target = sp.targetOf(s.target.name, s.setInflight(a))
	a.Target.Address, a.Target.Ports = in.endpoint(a.Target.Address, a.Target.Ports)
	if a.Target.Instance = in.id; in.id != probe.StaticID {
		a.Target.Since = sc.clock.Time(in.since)
	}
	if sp.closable != nil {
		sp.closable.attempts++
	}
	sc.isolation.begin(a, now)
	if a.wake = nil; sp.wakes {
		a.wake = func() { sc.wakeProbe(s) }
	}
	if sp.stepper == nil {
		a.attachContext(sc.ctx)
	}
	return a
}

// isOverdue reports whether an attempt should not be put off to the next regular time of its probe because the machine was
// suspended. Otherwise a probe with a long period could miss all attempts that fall into the nightly suspension.
func (s *slot) isOverdue(c *clock.Clock, now int64) bool {
	resumed := c.Resumed()
	return resumed != 0 && now-resumed <= 2*maxSleep && int64(s.spec.Load().rule.Period) > maxSleep
}

// mayShed reports whether an overloaded engine may skip an attempt of a probe: it passes, and its latest attempt did not fail.
func mayShed(k probe.Kind, st *verdict.State) bool {
	return k != probe.Startup && st.Verdict == probe.Passing && st.Last != probe.Failure
}

// recycled has non-blocking attempts that have finished, for reuse with their buffers. scheduler.mu guards it.
type recycled struct{ attempts []*attempt }

// maxRecycled bounds the recycled attempts, so that the memory of the others is released after an overload.
const maxRecycled = 1024

func (r *recycled) put(a *attempt) {
	if len(r.attempts) < maxRecycled {
		r.attempts = append(r.attempts, a)
	}
}

// take returns an attempt with spec sp: a recycled one if the handler is non-blocking.
func (r *recycled) take(sp *spec) *attempt {
	n := len(r.attempts)
	if sp.stepper == nil || n == 0 {
		return &attempt{judged: judged{spec: sp}}
	}
	a := r.attempts[n-1]
	r.attempts[n-1] = nil
	r.attempts = r.attempts[:n-1]
	a.spec = sp
	return a
}

// attachContext sets the fields of an attempt that a worker needs. It needs scheduler.mu.
func (a *attempt) attachContext(ctx context.Context) {
	of := a.slot.currentRare()
	a.lostBefore, a.waivedBefore = -1, of.waived
	a.ctx, a.cancel = context.WithCancel(ctx)
	if a.spec.keepsState() {
		a.lostBefore = of.lost
	}
}

// handOff hands a non-blocking attempt over to the workers. now reports whether it can start immediately, canceled whether it was
// canceled. It locks mu.
func (sc *scheduler) handOff(a *attempt) (now, canceled bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if a.canceled {
		return false, true
	}
	if a.lane, now = sc.timetable.schedule.Handoff(a.slot.key, a); now {
		a.attachContext(sc.ctx)
	}
	return now, false
}

// nextForWorker starts the attempt that has waited longest for a worker, from the first lane that may start an attempt. First
// attempts precede slow ones, so that a new target does not wait for targets that hang.
func (sc *scheduler) nextForWorker(now int64) *attempt {
	for _, lane := range [...]schedule.Lane{schedule.Fast, schedule.First, schedule.Slow} {
		if a := sc.nextHandedOff(lane); a != nil {
			return a
		}
		if a := sc.nextQueued(lane, now); a != nil {
			return a
		}
	}
	return nil
}

// nextHandedOff starts the attempt that has waited longest after handOff.
func (sc *scheduler) nextHandedOff(lane schedule.Lane) *attempt {
	for {
		a, ok := sc.timetable.schedule.NextHandoff(lane)
		switch {
		case !ok:
			return nil
		case a.canceled:
			sc.timetable.schedule.Release(lane)
			sc.closers.end(a)
			sc.counters.dropped++
		default:
			a.attachContext(sc.ctx)
			return a
		}
	}
}

// nextQueued starts the attempt of the probe that has waited longest in a lane.
func (sc *scheduler) nextQueued(lane schedule.Lane, now int64) *attempt {
	for {
		key, ok := sc.timetable.schedule.NextQueued(lane, now)
		if !ok {
			return nil
		}
		if a := sc.start(sc.slots[key], now); a != nil {
			return a
		}
	}
}

// completeOnWorker processes the result of a worker's attempt, and returns the next attempt for the worker, or nil. It locks mu.
func (sc *scheduler) completeOnWorker(a *attempt, res *probe.Result, panics int) *attempt {
	sc.mu.Lock()
	defer sc.unlock()
	now := sc.clock.Now()
	if sc.complete(a, res, panics, now); sc.ctx.Err() != nil {
		return nil
	}
	next := sc.nextForWorker(now)
	sc.wakeIfEarlier()
	return next
}

// complete processes the result of a finished attempt. The result is discarded if the probe no longer waits for it.
func (sc *scheduler) complete(a *attempt, res *probe.Result, panics int, now int64) {
	sc.timetable.schedule.Release(a.lane)
	sc.closers.end(a)
	sc.counters.panics += uint64(panics)
	switch {
	case sc.ctx.Err() != nil:
	case a.slot.inflight != a:
		sc.counters.dropped++
	default:
		judge{sc}.count(a, res, now)
	}
}

// conclude folds a result into the probe's state, and schedules the next attempt.
func (sc *scheduler) conclude(a *attempt, res *probe.Result, now int64) {
	judge{sc}.level(a, res, now)
	judge{sc}.restarts(a, res, now)
	judge{sc}.traffic(a.slot, res, now)
	sc.concludeAs(a, res, sc.eventOf(a, res), now)
}

// concludeAs publishes a result, and folds an event into the probe's state. The event may have another outcome than the result.
func (sc *scheduler) concludeAs(a *attempt, res *probe.Result, ev verdict.Event, now int64) {
	s, sp := a.slot, a.slot.spec.Load()
	s.setInflight(nil)
	sc.counters.attempt(s.kind, sp.handlerName, res)
	if res.Outcome == probe.Failure {
		s.flags.set(failureAnswered, isAnswer(res, true))
	}
	a.countWaived(res)
	// Denied does not count: a degraded engine could not restart the target that may have used up the processes.
	if isUnwell(res.Reason) && !a.waived && !res.Denied {
		sc.monitor.Blame(now)
	}
	sc.timetable.schedule.Finish(s.key, passed(res) || res.Took < sp.rule.Timeout/2)
	if of := s.currentRare(); passed(res) && of.sought != (sought{}) {
		of.sought = sought{}
	} else if of.sought.overruled > 0 {
		of.sought.overruled = 0
	}
	if next := sc.step(s, ev, res, now); next.WaitReason == verdict.NotWaiting {
		planned := a.next
		if next.adapted {
			planned = sc.timetable.schedule.Replan(s.key, a.start, next.state.Last == probe.Failure)
		}
		s.setNext(sc.timetable.schedule.Next(s.key, planned, now))
	}
	// This follows the verdict, so that a probe that has just recovered is never visible as proven and failing.
	if !isUncounted(ev, res) && s.prove(a.spec, res.Outcome) {
		sc.subscribers.notifyMemory(s.id())
	}
	if passed(res) {
		sc.summaries.readmit(s, a.start, now)
	}
	if s.kind == probe.Startup && sc.markStarted(s.target) {
		sc.reconcileAll(s.target)
		sc.summaries.updateState(s.target)
	}
}

// eventOf returns the event for the result of an attempt.
func (sc *scheduler) eventOf(a *attempt, res *probe.Result) verdict.Event {
	t := a.slot.target
	return verdict.Event{Attempted: true, Instance: t.public(t.current(), sc.clock), Outcome: res.Outcome, Extra: !a.counts}
}

// isUnwell reports whether a reason means that the engine currently lacks time or resources.
func isUnwell(r probe.Reason) bool {
	switch r {
	case reasonStalled, // the monitor has counted the stall
		reasonIsolated, probe.ReasonResolver, probe.ReasonClock, probe.ReasonNoBeatDue, probe.ReasonPermission, probe.ReasonNetwork,
		probe.ReasonNoQuorum:
		return false
	}
	return r.BlamesEngine()
}
