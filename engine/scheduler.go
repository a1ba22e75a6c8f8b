package engine

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// scheduler starts the attempts of due probes, and folds their results into verdicts. Apply, Report, Trigger, the loop and the
// workers call it. Its methods need mu, unless their comments say that they lock it.
type scheduler struct {
	clock    *clock.Clock
	registry *registry
	monitor  *health.Monitor
	redact   func(text string) string
	passDue  atomic.Int64 // when the loop's next pass is due, by the monotonic clock; 0 before and after Run

	mu          sync.Mutex      // guards all below, slot.inflight, and attempt.canceled
	ctx         context.Context // context of Run; nil before Run
	timetable   timetable
	slots       []*slot // by schedule key
	sleep       sleep
	tick        time.Duration // how often the loop checks the clock while attempts are in flight
	canceled    []*attempt    // non-blocking attempts that the loop must end
	recycled    recycled
	closers     closers
	isolation   isolation
	peers       peers
	outcomes    allOutcomes
	summaries   summaries
	counters    counters
	subscribers subscribers
	out         outbox
	log         eventLog

	trafficUntil int64 // when the last traffic report of a gateway expires
}

func newScheduler(c Config, r *registry) *scheduler {
	m, _ := readMachine(machine{}) // followMachine reads it again
	sc := &scheduler{
		clock:    clock.New(),
		registry: r,
		monitor:  new(health.Monitor),
		redact:   c.Redact,

		sleep:       sleep{wake: wake.New()},
		tick:        maxTick,
		counters:    counters{attempts: map[attemptKey]*Histogram{}, lateness: newHistogram()},
		subscribers: newSubscribers(),
		out:         outbox{logger: c.Logger, recorded: c.Recorded},
	}
	sc.timetable = timetable{schedule.New[*attempt](c.Concurrency, c.StartRate), sc.clock}
	sc.closers = closers{map[io.Closer]*closable{}, &sc.out}
	sc.peers = peers{m, map[*slot]string{}, c.NoIsolationCheck, &sc.isolation}
	sc.log = eventLog{out: &sc.out, debug: c.Logger.Enabled(context.Background(), slog.LevelDebug)}
	sc.summaries.clock, sc.summaries.registry, sc.summaries.monitor = sc.clock, r, sc.monitor
	sc.summaries.peers, sc.summaries.subscribers = &sc.peers, &sc.subscribers
	sc.summaries.out, sc.summaries.log = &sc.out, &sc.log
	sc.summaries.dependencies.Store(&dependencies{})
	sc.summaries.history.targets = map[string]*pastOf{}
	sc.summaries.uptimes.targets = map[string]*uptime{}
	return sc
}

// begin starts the schedule for Run. It returns false if Run was called before. It locks mu.
func (sc *scheduler) begin(ctx context.Context) bool {
	sc.mu.Lock()
	defer sc.unlock()
	if sc.ctx != nil {
		return false
	}
	sc.ctx = ctx
	sc.timetable.schedule.Begin(sc.clock.Now())
	return true
}

// unlock unlocks mu and runs the queued effects.
func (sc *scheduler) unlock() {
	effects := sc.out.take()
	sc.mu.Unlock()
	for _, apply := range effects {
		apply()
	}
}

// folded is the result of folding an event into the state of a probe.
type folded struct {
	verdict.Next
	state    verdict.State
	previous verdict.State      // before the event
	before   verdict.WaitReason // wait reason of the probe before the event
	first    bool               // before the event, attempts had not decided a verdict on the instance
	decided  bool               // after the event, they have
	wasBlind bool
	blind    bool
	adapted  bool // the period of the state has changed
	stumbled bool // the first attempt failed, and the verdict is not passing
	warned   bool // the probe warned before the event
	warns    bool // the probe warns after the event
}

// step folds an event into a probe's state and publishes the changes. res is the result of the attempt, or nil if the event is
// not an attempt.
func (sc *scheduler) step(s *slot, ev verdict.Event, res *probe.Result, now int64) folded {
	rule, at := s.spec.Load().rule, sc.clock.Time(now)
	if res != nil && res.Reason.IsNeverCounted() {
		rule.OnError = probe.ErrorIgnored
	}
	outcome := probe.Unknown
	s.mu.Lock()
	stumbled := res != nil && s.result == nil && res.Outcome == probe.Failure && s.state.Verdict != probe.Passing
	if res != nil {
		outcome = res.Outcome
		if sc.outcomes.add(s, res.Outcome, !isUncounted(ev, res)) {
			sc.out.record(s.target.name, RecordOutcomes)
		}
		s.record(res, now)
	}
	f := folded{previous: s.state, before: s.waitReason, warned: s.marks.has(markWarned), stumbled: stumbled}
	f.state, f.Next = verdict.Step(rule, s.state, ev, at)
	s.state, s.waitReason = f.state, f.WaitReason
	if f.state.Instance != f.previous.Instance {
		s.result, s.resultAt, s.decided = nil, 0, false
		s.marks.set(markBlind, false)
		s.forgetFault()
	}
	f.first, f.wasBlind = !s.decided, s.marks.has(markBlind)
	if res != nil {
		s.decided = s.decided || f.Changed || verdict.Concluded(rule, f.state)
		s.marks.set(markBlind, f.state.Errors > 0 && (f.wasBlind || verdict.Blinds(rule, f.state.Errors, res.Reason)))
	}
	if s.warn(&rule, outcome, f.state.Instance != f.previous.Instance); outcome == probe.Warning && ev.Outcome == probe.Failure && s.state.Verdict == probe.Passing {
		s.setWarnings(verdict.Warnings{Warns: true}) // others overruled the failure: see judge.concludeOverruled
	}
	f.decided, f.blind, f.warns = s.decided, s.marks.has(markBlind), s.marks.has(markWarned)
	if f.Changed {
		s.publish(now)
	}
	s.mu.Unlock()
	f.adapted = sc.timetable.adaptPeriod(s, s.spec.Load())
	sc.publish(s, &f, res, now)
	return f
}

// isUncounted reports whether an attempt affects neither the verdict nor the recorded outcomes of its probe.
func isUncounted(ev verdict.Event, res *probe.Result) bool {
	return ev.Extra && !passed(res) || res.Outcome == probe.Unknown && res.Reason.IsNeverCounted()
}

// publish notifies subscribers of the changes, logs them, and updates the summary of the target.
func (sc *scheduler) publish(s *slot, f *folded, res *probe.Result, now int64) {
	rule := s.spec.Load().rule
	if f.Changed {
		sc.summaries.readmit(s, now, now)
	}
	switch {
	case f.Changed || f.decided && f.first || f.stumbled || f.warns != f.warned || f.state.OnHold != f.previous.OnHold:
		sc.subscribers.notifyProbe(s.id(), probeChanged)
	case len(sc.subscribers.memories) > 0 && verdict.Settled(rule, f.state) != verdict.Settled(rule, f.previous):
		sc.subscribers.notifyMemory(s.id())
	}
	if res != nil {
		sc.log.attempt(s, f, res, now)
	} else if f.Changed && f.state.Instance == f.previous.Instance {
		sc.out.log(newVerdictLine(s, f, nil))
	}
	if f.Changed || f.blind != f.wasBlind || f.decided && f.first || f.warns != f.warned {
		sc.summaries.updateState(s.target)
		sc.summaries.recordVerdict(s, f, res, now)
	}
}

// look folds the current phase of the instance into a probe's state, to find out whether the probe may be attempted now.
func (sc *scheduler) look(s *slot, now int64) folded {
	in := s.target.current()
	ev := verdict.Event{Instance: s.target.public(in, sc.clock), Started: in.hasStarted()}
	return sc.step(s, ev, nil, now)
}

// reconcile schedules a probe after its instance or its spec has changed. A probe that no longer has to wait gets a first
// attempt. Other probes, and those that resume a run from an earlier engine, keep their regular times.
func (sc *scheduler) reconcile(s *slot) {
	now := sc.clock.Now()
	next := sc.look(s, now)
	waited := next.before != verdict.NotWaiting
	if a := s.inflight; a != nil && (next.WaitReason != verdict.NotWaiting || a.instance != s.target.current().id) {
		sc.drop(s)
		waited = true
	}
	wasResumed := s.flags.has(resumed)
	s.flags.set(resumed, wasResumed && next.WaitReason == verdict.NoInstance)
	switch {
	case next.WaitReason != verdict.NotWaiting:
		sc.timetable.wait(s, next.At)
	case wasResumed && !next.Changed:
		sc.timetable.at(s, sc.timetable.schedule.Times(s.key).From(now))
	case waited || next.Changed:
		sc.timetable.first(s, now)
	}
}

// reconcileAll reconciles every probe of a target, startup probes first. If that makes the instance started, it reconciles them
// again, since the other probes were waiting for it.
func (sc *scheduler) reconcileAll(t *target) {
	for _, s := range sc.registry.probesOf(t) {
		sc.reconcile(s)
	}
	if sc.markStarted(t) {
		sc.reconcileAll(t)
	}
}

// markStarted marks the target's instance as started if it has just started, and reports whether it did.
func (sc *scheduler) markStarted(t *target) bool {
	in := t.current()
	if in.started || !sc.registry.startupPassed(t, in) {
		return false
	}
	started := *in
	started.started = true
	t.instance.Store(&started)
	return true
}

// trigger makes a probe due immediately, or as soon as its attempt in flight finishes, unless something else holds it
// back. See Schedule.Trigger for byHandler.
func (sc *scheduler) trigger(s *slot, byHandler bool) {
	if sc.slots[s.key] != s || s.currentWaitReason() != verdict.NotWaiting {
		return
	}
	if at := sc.timetable.schedule.Trigger(s.key, sc.clock.Now(), byHandler); at != 0 {
		s.setNext(at)
		sc.wakeIfEarlier()
	}
}

// wakeProbe triggers a probe on behalf of its own handler, which may request that at any time and at any rate: attempts are at
// least probe.MinPeriod apart. It locks mu.
func (sc *scheduler) wakeProbe(s *slot) {
	sc.mu.Lock()
	defer sc.unlock()
	sc.trigger(s, true)
}

// wakeIfEarlier wakes the loop if something is due before its next wake-up.
func (sc *scheduler) wakeIfEarlier() {
	if due := sc.nextDue(); due < sc.sleep.until {
		sc.setPassDue(max(due, sc.clock.Now()))
		sc.sleep.wakeNow()
	}
}

// setPassDue sets when the loop's next pass is due. Time in which the machine is suspended does not count as a delay.
func (sc *scheduler) setPassDue(at int64) { sc.passDue.Store(at - int64(sc.clock.Suspended())) }

// nextDue returns when the loop's next action is due.
func (sc *scheduler) nextDue() int64 {
	return min(sc.log.firsts.next(), sc.log.health.next(), sc.isolation.unsettled.Next(),
		sc.summaries.ejections.ends.Next(), sc.summaries.penalties.due.Next(), sc.timetable.schedule.First())
}

// sleep is the state in which the loop sleeps and is woken. scheduler.mu guards it.
type sleep struct {
	until int64         // when the loop will wake up; 0 while it is awake
	set   *nonblock.Set // the set that the loop waits with; nil if it waits for wake
	wake  wake.Signal   // never replaced
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
	s.wake.Set()
}
