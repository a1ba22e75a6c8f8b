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
	"github.com/sonde-probe/sonde/engine/internal/timeline"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// scheduler starts the attempts of probes that are due, and folds their results into
// verdicts. Apply, Report, Trigger, the loop and the workers call it. Its methods need
// mu, except for those whose comments say that they lock it.
type scheduler struct {
	clock    *clock.Clock
	registry *registry
	logger   *slog.Logger
	monitor  *health.Monitor
	passDue  atomic.Int64 // when the loop has to make its next pass, by the monotonic clock; 0 before and after Run

	noIsolationCheck bool
	debug            bool // the log has a line for each attempt

	dependencies atomic.Pointer[dependencies] // replaced as a whole while mu is held

	mu         sync.Mutex // guards all below, slot.inflight, and attempt.canceled
	schedule   *schedule.Schedule[*attempt]
	slots      []*slot         // by key of the schedule
	ctx        context.Context // of Run; nil before
	sleep      sleep
	tick       time.Duration // how often the loop looks at the clock while attempts are in flight
	canceled   []*attempt    // non-blocking ones, for the loop to end
	recycled   []*attempt    // non-blocking ones, to be used again
	counters   counters
	subs       map[*Subscription]struct{}
	memorySubs map[*Subscription]struct{} // those of subs that deliver changes of memories too
	targetSubs map[*Subscription]struct{} // deliver changes of targets, and none of probes
	lines      []logLine                  // to be written by unlock
	closers    closers
	isolation  isolation
	machine    machine
	hosts      map[*slot]string // that handlers connect to, other than their targets' addresses: see setHost
	unreported unreportedTargets
	ejections  timeline.Timeline // when they end at the latest, by key of the schedule
	penalties  penalties
	firsts     firstVerdicts
	pasts      []string // targets whose history has changed, to be told by unlock

	history        history
	historyChanged func(target string) // nil: no one follows histories

	flapped        []string            // targets whose penalties have changed, to be told by unlock
	penaltyChanged func(target string) // nil: no one follows penalties

	outcomesSize    int                 // bytes of the outcomes of all probes
	recorded        []string            // targets of whose probes outcomes were recorded, to be told by unlock
	outcomesChanged func(target string) // nil: no one follows outcomes

	redact func(text string) string
}

func newScheduler(c Config, r *registry) *scheduler {
	m, _ := readMachine(machine{}) // followMachine reads again
	sc := &scheduler{
		clock:    clock.New(),
		registry: r,
		logger:   c.Logger,
		monitor:  new(health.Monitor),

		noIsolationCheck: c.NoIsolationCheck,
		debug:            c.Logger.Enabled(context.Background(), slog.LevelDebug),

		machine:    m,
		schedule:   schedule.New[*attempt](c.Concurrency, c.StartRate),
		sleep:      sleep{wake: make(chan struct{}, 1)},
		tick:       maxTick,
		counters:   counters{attempts: map[attemptKey]*Histogram{}, lateness: newHistogram()},
		isolation:  isolation{silentSince: map[*slot]int64{}},
		hosts:      map[*slot]string{},
		subs:       map[*Subscription]struct{}{},
		memorySubs: map[*Subscription]struct{}{},
		targetSubs: map[*Subscription]struct{}{},
		closers:    closers{handlers: map[io.Closer]*closable{}},

		historyChanged:  c.HistoryChanged,
		penaltyChanged:  c.PenaltyChanged,
		outcomesChanged: c.OutcomesChanged,
		redact:          c.Redact,
	}
	sc.dependencies.Store(&dependencies{})
	return sc
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
	now := sc.clock.Now()
	sc.schedule.Begin(now)
	for t := range sc.registry.walk(ctx, "") {
		sc.unreported.add(t.target, now)
	}
	return true
}

// unlock unlocks mu. Then it closes the handlers that were released while it was held, writes
// the log lines of what happened, and tells whose history, penalty or outcomes have changed: all may
// block.
func (sc *scheduler) unlock() {
	lines, unused, pasts, flapped, recorded := sc.lines, sc.closers.unused, sc.pasts, sc.flapped, sc.recorded
	sc.lines, sc.closers.unused, sc.pasts, sc.flapped, sc.recorded = nil, nil, nil, nil, nil
	sc.mu.Unlock()
	for _, target := range pasts {
		sc.historyChanged(target)
	}
	for _, target := range flapped {
		sc.penaltyChanged(target)
	}
	for _, target := range recorded {
		sc.outcomesChanged(target)
	}
	for _, h := range unused {
		_ = h.Close() // the handler's own problem: its probes are gone
	}
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
	state    verdict.State
	previous verdict.State      // before the event
	before   verdict.WaitReason // of the probe, before the event
	first    bool               // attempts had not decided a verdict on the instance before the event
	decided  bool               // they have now
	wasBlind bool
	blind    bool
	adapted  bool // the state has another period than before
	warning  bool // the probe warns now, and has not before, or the other way round
}

// step folds an event into a probe's state and publishes what has changed. Res is
// the attempt's result, if the event is one.
func (sc *scheduler) step(s *slot, ev verdict.Event, res *probe.Result, now int64) folded {
	rule, at := s.spec.Load().rule, sc.clock.Time(now)
	if res != nil && res.Reason.BlamesEngine() {
		rule.OnError = probe.ErrorIgnored
	}
	s.mu.Lock()
	marked := s.marks
	if res != nil {
		uncounted := ev.Extra && !passed(res) || res.Outcome == probe.Unknown && res.Reason.BlamesEngine()
		sc.recordOutcome(s, res.Outcome, !uncounted)
		s.record(res, now)
	}
	f := folded{previous: s.state, before: s.waitReason, warning: s.marks != marked}
	f.state, f.Next = verdict.Step(rule, s.state, ev, at)
	s.state, s.waitReason = f.state, f.WaitReason
	if f.state.Instance != f.previous.Instance {
		s.result, s.resultAt, s.decided = nil, 0, false
		s.marks.set(markBlind, false)
	}
	f.first, f.wasBlind = !s.decided, s.marks.has(markBlind)
	if res != nil {
		s.decided = s.decided || f.Changed || verdict.Concluded(rule, f.state)
		s.marks.set(markBlind, f.state.Errors > 0 && (f.wasBlind || verdict.Blinds(rule, f.state.Errors, res.Reason)))
	}
	f.decided, f.blind = s.decided, s.marks.has(markBlind)
	if f.Changed {
		s.publish(now)
	}
	s.mu.Unlock()
	f.adapted = sc.adaptPeriod(s, s.spec.Load())
	sc.tell(s, &f, res, now)
	return f
}

// tell tells subscribers and the log what has followed from an event, and brings the state of
// the target up to date.
func (sc *scheduler) tell(s *slot, f *folded, res *probe.Result, now int64) {
	rule := s.spec.Load().rule
	if f.Changed {
		sc.readmit(s, now, now)
	}
	switch {
	case f.Changed:
		sc.notify(s.id(), probeChanged)
	case len(sc.memorySubs) > 0 && verdict.Settled(rule, f.state) != verdict.Settled(rule, f.previous):
		sc.notifyMemory(s.id())
	}
	if res != nil {
		sc.logAttempt(s, f, res, now)
	} else if f.Changed && f.state.Instance == f.previous.Instance {
		sc.lines = append(sc.lines, newVerdictLine(s, f, nil))
	}
	if f.Changed || f.blind != f.wasBlind || f.decided && f.first || f.warning {
		sc.updateState(s.target)
		sc.recordVerdict(s, f, res, now)
	}
}

// look folds the instance's present phase into a probe's state: may it be attempted
// now?
func (sc *scheduler) look(s *slot, now int64) folded {
	in := s.target.current()
	ev := verdict.Event{Type: verdict.Looked, Instance: s.target.public(in, sc.clock), Started: in.hasStarted()}
	return sc.step(s, ev, nil, now)
}

// reconcile makes a probe due after its instance or its spec has changed. A probe that
// has waited and need not wait any more gets a first attempt; another one, and one that
// goes on with a run from before, keeps its regular times.
func (sc *scheduler) reconcile(s *slot) {
	now := sc.clock.Now()
	next := sc.look(s, now)
	waited := next.before != verdict.NotWaiting
	if a := s.inflight; a != nil && (next.Do != verdict.Attempt || a.instance != s.target.current().id) {
		sc.drop(s)
		waited = true
	}
	wasResumed := s.flags.has(resumed)
	s.flags.set(resumed, wasResumed && next.WaitReason == verdict.NoInstance)
	switch {
	case next.Do != verdict.Attempt:
		sc.wait(s, next.At)
	case wasResumed && !next.Changed:
		sc.at(s, sc.schedule.Times(s.key).From(now))
	case waited || next.Changed:
		sc.first(s, now)
	}
}

// first makes the first attempt due of a probe that need not wait after a time. It is
// an extra attempt at that time if the probe may have one, and else the first regular
// attempt.
func (sc *scheduler) first(s *slot, from int64) {
	if !s.spec.Load().attemptsAtOnce() {
		from = sc.schedule.Times(s.key).From(from)
	}
	sc.extra(s, from)
}

// wait lets a probe wait until a time, or with the zero time for a change.
func (sc *scheduler) wait(s *slot, until time.Time) {
	if until.IsZero() {
		sc.idle(s)
	} else {
		sc.first(s, sc.clock.At(until))
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

// trigger makes a probe due at once, or after its attempt in flight, unless it
// waits for something else. See Schedule.Trigger for byHandler.
func (sc *scheduler) trigger(s *slot, byHandler bool) {
	if sc.slots[s.key] != s || s.currentWaitReason() != verdict.NotWaiting {
		return
	}
	if at := sc.schedule.Trigger(s.key, sc.clock.Now(), byHandler); at != 0 {
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
	if due := sc.nextDue(); due < sc.sleep.until {
		sc.setPassDue(max(due, sc.clock.Now()))
		sc.sleep.wakeNow()
	}
}

// setPassDue sets when the loop has to make its next pass. While the machine is suspended it is not late.
func (sc *scheduler) setPassDue(at int64) { sc.passDue.Store(at - int64(sc.clock.Suspended())) }

// nextDue returns when the loop has something to do next.
func (sc *scheduler) nextDue() int64 {
	due := min(sc.unreported.next(), sc.firsts.next(), sc.isolation.next(), sc.nextEjection(), sc.penalties.next())
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
