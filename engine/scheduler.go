package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// scheduler starts the attempts of probes that are due, and folds their results into
// verdicts. Apply, Report, Trigger, the loop and the workers call it. Its methods need
// mu, except for those whose comments say that they lock it.
type scheduler struct {
	clock    clock
	registry *registry
	logger   *slog.Logger

	mu         sync.Mutex // guards all below, slot.inflight, and attempt.canceled
	schedule   *schedule.Schedule[*attempt]
	slots      []*slot         // by key of the schedule
	ctx        context.Context // of Run; nil before
	sleep      sleep
	canceled   []*attempt // non-blocking ones, for the loop to end
	recycled   []*attempt // non-blocking ones, to be used again
	counters   counters
	subs       map[*Subscription]struct{}
	lines      []logLine // to be written by unlock
	unreported unreportedTargets
}

func newScheduler(c Config, r *registry) *scheduler {
	return &scheduler{
		clock:    newClock(),
		registry: r,
		logger:   c.Logger,
		schedule: schedule.New[*attempt](c.Concurrency, c.StartRate),
		sleep:    sleep{wake: make(chan struct{}, 1)},
		counters: newCounters(),
		subs:     map[*Subscription]struct{}{},
	}
}

// begin starts the schedule for Run, and reports whether it is the first Run. It
// locks mu.
func (sc *scheduler) begin(ctx context.Context) bool {
	sc.mu.Lock()
	defer sc.unlock()
	if sc.ctx != nil {
		return false
	}
	sc.ctx = ctx
	now := sc.clock.now()
	sc.schedule.Begin(now)
	for _, t := range sc.registry.all() {
		sc.unreported.add(t, now)
	}
	return true
}

// unlock unlocks mu, and then writes the log lines of what happened while it was
// held: a logger may block.
func (sc *scheduler) unlock() {
	lines := sc.lines
	sc.lines = nil
	sc.mu.Unlock()
	for _, l := range lines {
		l.write(sc.logger)
	}
}

// at makes a probe due at one of its regular times.
func (sc *scheduler) at(s *slot, at int64) {
	sc.schedule.At(s.key, at)
	s.setNext(at)
}

// extra makes a probe due at a time of its own.
func (sc *scheduler) extra(s *slot, at int64) {
	sc.schedule.Extra(s.key, at)
	s.setNext(at)
}

// idle makes a probe not due.
func (sc *scheduler) idle(s *slot) {
	sc.schedule.Cancel(s.key)
	s.setNext(0)
}

// folded is what followed from an event.
type folded struct {
	verdict.Next
	state  verdict.State
	before verdict.WaitReason // of the probe, before the event
}

// step folds an event into a probe's state and publishes what has changed. Res is
// the attempt's result, if the event is one.
func (sc *scheduler) step(s *slot, ev verdict.Event, res *probe.Result, now int64) folded {
	sp, at := s.spec.Load(), sc.clock.time(now)
	s.mu.Lock()
	if res != nil {
		s.record(res, now)
	}
	before := s.state
	f := folded{before: s.waitReason}
	f.state, f.Next = verdict.Step(sp.rule, before, ev, at)
	s.state, s.waitReason = f.state, f.WaitReason
	if f.state.Instance != before.Instance {
		s.result, s.resultAt = nil, 0
	}
	var line *verdictLine
	if f.Changed {
		s.since = now
		s.changes++
		if s.rare != nil {
			s.rare.gauge.set(f.state.Verdict)
		}
		if ev.Type == verdict.Attempted || f.state.Instance == before.Instance {
			line = newVerdictLine(s, before.Verdict, ev.Type)
		}
	}
	s.mu.Unlock()
	if f.Changed {
		sc.notify(s.id())
	}
	if line != nil {
		sc.lines = append(sc.lines, line)
	}
	return f
}

// look folds the instance's present phase into a probe's state: may it be attempted
// now?
func (sc *scheduler) look(s *slot, now int64) folded {
	in := s.target.current()
	ev := verdict.Event{Type: verdict.Looked, Instance: s.target.public(in, &sc.clock), Started: in.hasStarted()}
	return sc.step(s, ev, nil, now)
}

// reconcile makes a probe due after its instance or its spec has changed. A probe that
// has waited and need not wait any more is attempted at once; another one keeps its
// regular times.
func (sc *scheduler) reconcile(s *slot) {
	now := sc.clock.now()
	next := sc.look(s, now)
	waited := next.before != verdict.NotWaiting
	if a := s.inflight; a != nil && (next.Do != verdict.Attempt || a.instance != s.target.current().id) {
		sc.drop(s)
		waited = true
	}
	switch {
	case next.Do != verdict.Attempt:
		sc.wait(s, next.At)
	case waited || next.Changed:
		sc.extra(s, now)
	}
}

// wait makes a probe due at a time, or with the zero time not at all.
func (sc *scheduler) wait(s *slot, until time.Time) {
	if until.IsZero() {
		sc.idle(s)
	} else {
		sc.extra(s, sc.clock.at(until))
	}
}

// reconcileAll reconciles every probe of a target, startup probes first. If the
// instance has started then, it does so again, since the other probes have waited for
// that.
func (sc *scheduler) reconcileAll(t *target) {
	for _, s := range sc.registry.probesOf(t) {
		sc.reconcile(s)
	}
	if sc.markStarted(t) {
		sc.reconcileAll(t)
	}
}

// markStarted marks the target's instance as started if it has started now, and
// reports whether it has.
func (sc *scheduler) markStarted(t *target) bool {
	in := t.current()
	if in.started || !sc.startupPassed(t, in) {
		return false
	}
	started := *in
	started.started = true
	t.instance.Store(&started)
	return true
}

// startupPassed reports whether an instance runs and all startup probes of its target
// have passed. An instance without probes may have been reported before its probes
// were applied: nothing is known about it.
func (sc *scheduler) startupPassed(t *target, in *instance) bool {
	slots := sc.registry.probesOf(t)
	if in.phase != probe.Running || len(slots) == 0 {
		return false
	}
	for _, s := range slots {
		if s.kind == probe.Startup && !s.hasPassed(in.id) {
			return false
		}
	}
	return true
}

// drop cancels a probe's attempt in flight. Its result will not count.
func (sc *scheduler) drop(s *slot) {
	a := s.inflight
	if a == nil {
		return
	}
	s.setInflight(nil)
	sc.schedule.Drop(s.key)
	if a.cancel != nil {
		a.cancel()
		return
	}
	a.canceled = true
	sc.canceled = append(sc.canceled, a)
	sc.sleep.wakeNow()
}

// preparePeriod is how often the engine checks whether a handler is ready.
const preparePeriod = 100 * time.Millisecond

// tryStart starts the attempt of a probe that is due, unless its handler is not
// ready, or it has to wait for the pacer or for a free place.
func (sc *scheduler) tryStart(s *slot, due, now int64) *attempt {
	if !s.spec.Load().isReady() {
		s.mu.Lock()
		s.waitReason = verdict.Preparing
		s.mu.Unlock()
		sc.extra(s, now+int64(preparePeriod))
		return nil
	}
	start, at := sc.schedule.Admit(s.key, due, now)
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
	if next.Do != verdict.Attempt {
		sc.wait(s, next.At)
		return nil
	}
	st, ok := sc.schedule.Start(s.key, now, mayShed(s.kind, &next.state))
	if !ok {
		s.setNext(st.Next)
		return nil
	}
	sc.counters.lateness.add(st.Lateness)
	sp := s.spec.Load()
	a := sc.newAttempt(sp.stepper)
	a.slot, a.instance, a.next, a.lane = s, s.target.current().id, st.Next, st.Lane
	a.probe = sp.probe(s.target.name, s.setInflight(a))
	if a.stepper == nil {
		sc.attachContext(a)
	}
	return a
}

// mayShed reports whether an overloaded engine may skip an attempt of a probe: if it
// passes, and its latest attempt has not failed.
func mayShed(k probe.Kind, st *verdict.State) bool {
	return k != probe.Startup && st.Verdict == probe.Passing && st.Last != probe.Failure
}

// newAttempt returns an attempt that the loop makes, or, without a stepper, a worker.
func (sc *scheduler) newAttempt(stepper nonblock.Stepper) *attempt {
	n := len(sc.recycled)
	if stepper == nil || n == 0 {
		return &attempt{stepper: stepper}
	}
	a := sc.recycled[n-1]
	sc.recycled[n-1] = nil
	sc.recycled = sc.recycled[:n-1]
	a.stepper = stepper
	return a
}

// attachContext gives an attempt what its worker needs.
func (sc *scheduler) attachContext(a *attempt) {
	a.stepper = nil
	a.ctx, a.cancel = context.WithCancel(sc.ctx)
	if _, ok := a.probe.Handler.(probe.WakingHandler); ok {
		s := a.slot
		a.wake = func() { sc.wakeProbe(s) }
	}
}

// handOff makes a non-blocking attempt one for a worker, and reports whether that
// can start now. It locks mu.
func (sc *scheduler) handOff(a *attempt) (now, canceled bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if a.canceled {
		return false, true
	}
	if a.lane, now = sc.schedule.Handoff(a.slot.key, a); now {
		sc.attachContext(a)
	}
	return now, false
}

// nextForWorker starts the attempt that has waited longest for a worker.
func (sc *scheduler) nextForWorker(now int64) *attempt {
	for _, lane := range [...]schedule.Lane{schedule.Fast, schedule.Slow} {
		if a := sc.nextHandedOff(lane); a != nil {
			return a
		}
		if a := sc.nextQueued(lane, now); a != nil {
			return a
		}
	}
	return nil
}

// nextHandedOff starts the attempt that has waited longest since handOff.
func (sc *scheduler) nextHandedOff(lane schedule.Lane) *attempt {
	for {
		a, ok := sc.schedule.NextHandoff(lane)
		switch {
		case !ok:
			return nil
		case a.canceled:
			sc.schedule.Release(lane)
			sc.counters.dropped++
		default:
			sc.attachContext(a)
			return a
		}
	}
}

// nextQueued starts the attempt of the probe that has waited longest in a lane.
func (sc *scheduler) nextQueued(lane schedule.Lane, now int64) *attempt {
	for {
		key, ok := sc.schedule.NextQueued(lane, now)
		if !ok {
			return nil
		}
		if a := sc.start(sc.slots[key], now); a != nil {
			return a
		}
	}
}

// completeOnWorker takes the result of a worker's attempt, and returns another
// attempt for the worker. It locks mu.
func (sc *scheduler) completeOnWorker(a *attempt, res *probe.Result, panics int) *attempt {
	sc.mu.Lock()
	defer sc.unlock()
	now := sc.clock.now()
	if sc.complete(a, res, panics, now); sc.ctx.Err() != nil {
		return nil
	}
	next := sc.nextForWorker(now)
	sc.wakeIfEarlier()
	return next
}

// complete takes the result of an attempt that has ended. It counts if the probe
// still waits for it.
func (sc *scheduler) complete(a *attempt, res *probe.Result, panics int, now int64) {
	sc.schedule.Release(a.lane)
	sc.counters.panics += uint64(panics)
	switch {
	case sc.ctx.Err() != nil:
	case a.slot.inflight != a:
		sc.counters.dropped++
	default:
		sc.count(a, res, now)
	}
}

// count folds a result into its probe's state, and makes the probe due again.
func (sc *scheduler) count(a *attempt, res *probe.Result, now int64) {
	s, sp := a.slot, a.slot.spec.Load()
	s.setInflight(nil)
	sc.counters.attempt(s.kind, sp.handlerName, res)
	sc.schedule.Finish(s.key, passed(res) || res.Took < sp.rule.Timeout/2)
	ev := verdict.Event{Type: verdict.Attempted, Instance: s.target.public(s.target.current(), &sc.clock), Outcome: res.Outcome}
	if next := sc.step(s, ev, res, now); next.Do != verdict.Wait {
		s.setNext(sc.schedule.Next(s.key, a.next, now))
	}
	if s.kind == probe.Startup && sc.markStarted(s.target) {
		sc.reconcileAll(s.target)
	}
}

// trigger makes a probe due at once, or after its attempt in flight, unless it
// waits for something else.
func (sc *scheduler) trigger(s *slot, spaced bool) {
	if sc.slots[s.key] != s || s.currentWaitReason() != verdict.NotWaiting {
		return
	}
	if at := sc.schedule.Trigger(s.key, sc.clock.now(), spaced); at != 0 {
		s.setNext(at)
		sc.wakeIfEarlier()
	}
}

// wakeProbe triggers a probe for its own handler, which may ask at any time and as
// often as it likes: two attempts are probe.MinPeriod apart at least. It locks mu.
func (sc *scheduler) wakeProbe(s *slot) {
	sc.mu.Lock()
	defer sc.unlock()
	sc.trigger(s, true)
}

// wakeIfEarlier wakes the loop if there is something to do before it would wake up.
func (sc *scheduler) wakeIfEarlier() {
	if sc.nextDue() < sc.sleep.until {
		sc.sleep.wakeNow()
	}
}

// nextDue returns when the loop has something to do next.
func (sc *scheduler) nextDue() int64 {
	due := sc.unreported.next()
	if at, ok := sc.schedule.First(); ok {
		due = min(due, at)
	}
	return due
}

// sleep is how the loop sleeps and is woken. scheduler.mu guards it.
type sleep struct {
	until int64         // when the loop wakes up; 0 while it is awake
	set   *nonblock.Set // what it waits for; nil: for wake
	wake  chan struct{} // capacity 1; never replaced
}

// wakeNow wakes the loop if it sleeps.
func (s *sleep) wakeNow() {
	if s.until == 0 {
		return
	}
	s.until = 0
	if s.set != nil {
		s.set.Wake()
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
