package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// instance is one call of a driver's Run, from start to return. It belongs to the goroutine of its supervisor. Its
// phase changes only by the table of transitions.
type instance struct {
	supervisor *supervisor
	driver     Driver // the driver whose Run is called; after a reload the unit has another, equal one
	isExternal bool
	cancel     context.CancelCauseFunc
	end        chan time.Duration // capacity 1
	recheck    *time.Timer        // fires when the probes must be checked again

	inbox inbox // reports of the driver

	phase     phase
	id        string    // empty until it has started
	begun     Begun     // as reported by the driver
	since     time.Time // when it started
	provenAt  time.Time // when it will have run for as long as the back-off before it; until then it is in a crash loop
	notBefore time.Time // deadline of the phase, if it has one; otherwise the earliest time of the next request to terminate
	requests  int       // number of requests to terminate because a probe fails
	failed    string    // which probe failed and why, once the instance was asked to terminate
	refusal   string    // the latest error of the driver when it could not terminate the failing instance
	budgeted  bool      // the budget permitted the restart
	acquired  bool      // the disruption budget was asked for its restart
	charged   bool      // its restart was charged to the budget by this instance, not earlier
	explained bool      // the reported detail explains the reason, not the exit of the previous instance
	byOthers  bool      // see Exit.ByOthers
	inquiry   inquiry   // checks whether its dependencies fail, when a probe fails

	notice     Notice // the latest Notice of a Notifying driver
	isReplaced bool   // it was asked to terminate before it started, because an operator requested another instance
}

// reports is the latest state that the driver has reported.
type reports struct {
	begun  Begun  // zero until it has started
	notice Notice // the latest Notice of a Notifying driver
	failed error  // why it could not terminate the instance; reset once read
	exit   *Exit  // nil until Run has returned
}

// occurrence is an event with the data that its action needs.
type occurrence struct {
	event   event
	wish    wish          // for unwanted, stops and outlives: the desired state
	failing engine.Status // for waits, fails and expires: the failing probe
	delay   delay         // for waits
	err     error         // for refused: the error of the driver
}

// delay is the reason why a restart waits, and the earliest time at which it may begin. The zero delay is no delay.
type delay struct {
	reason probe.Reason // empty if it is not to be reported
	until  time.Time
	detail string // for people
	group  string // the group that withholds the restart, with the reason restart.floor
}

// runInstance starts an instance and returns how it exited. An External instance is not asked to terminate before
// notBefore.
func (s *supervisor) runInstance(notBefore time.Time) termination {
	ctx, cancel := context.WithCancelCause(s.control.forced)
	defer cancel(nil)
	i := &instance{
		supervisor: s, driver: s.unit.Driver, cancel: cancel, notBefore: notBefore,
		end: make(chan time.Duration, 1), recheck: time.NewTimer(0), inbox: inbox{wake: s.wake},
	}
	defer i.recheck.Stop()
	s.control.takeRequest(s.target) // a pending restart request is satisfied by a new instance
	i.setStop()
	if d, ok := i.driver.(External); ok {
		i.isExternal = true
		d.SetFailed(func(reason error) { i.inbox.report(func(r *reports) { r.failed = cmp.Or(r.failed, reason) }) })
	}
	if d, ok := i.driver.(Notifying); ok {
		d.SetNotice(func(n Notice) { i.inbox.report(func(r *reports) { r.notice = n }) })
	}
	go i.run(ctx)
	for {
		select {
		case <-s.wake:
		case <-i.recheck.C:
		}
		r := i.inbox.read()
		i.notice = r.notice
		i.handle(i.start(r.begun))
		if r.exit != nil {
			return i.finish(*r.exit)
		}
		if r.failed != nil {
			i.handle(occurrence{event: refused, err: r.failed})
		}
		i.handle(i.check(time.Now()))
	}
}

// inbox holds the reports of a driver. It is safe for concurrent use.
type inbox struct {
	reportsMu sync.Mutex // guards reports
	reports   reports
	wake      wake.Signal // of the supervisor
}

// report updates the reports, and wakes the supervisor.
func (in *inbox) report(change func(r *reports)) {
	in.reportsMu.Lock()
	change(&in.reports)
	in.reportsMu.Unlock()
	in.wake.Set()
}

// read returns the current reports. It returns each failure to terminate only once.
func (in *inbox) read() reports {
	in.reportsMu.Lock()
	defer in.reportsMu.Unlock()
	r := in.reports
	in.reports.failed = nil
	return r
}

// run calls the driver. It converts a panic or a runtime.Goexit into an error.
func (i *instance) run(ctx context.Context) {
	exit := Exit{Code: -1, Err: errors.New("driver has ended its goroutine")}
	defer func() {
		if r := recover(); r != nil {
			exit.Err = fmt.Errorf("driver panicked: %v", r)
			i.supervisor.log.Error("driver panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
		i.inbox.report(func(r *reports) { r.exit = &exit })
	}()
	began := func(b Begun) {
		i.inbox.report(func(r *reports) {
			if r.begun.ID != "" {
				return
			}
			if r.begun = b; i.isExternal {
				i.dropGrace() // the request was to start this instance
			}
		})
	}
	exit = i.driver.Run(ctx, began, i.end)
}

// setStop passes the unit's stop settings to an Outliving driver.
func (i *instance) setStop() {
	if d, ok := i.driver.(Outliving); ok {
		u := i.supervisor.unit
		d.SetStop(StopSettings{GracePeriod: u.TerminationGracePeriod, Signal: u.StopSignal, PreStop: u.PreStop})
	}
}

// handle moves the instance to its next phase and runs the action of the transition.
func (i *instance) handle(o occurrence) {
	next, do := i.phase.on(o.event)
	i.phase = next
	now := time.Now()
	switch do {
	case doAnnounce:
		i.announce(now)
	case doSettle, doCancel:
		i.settle(now, do == doCancel)
	case doDisregard:
		i.showRunning(now, false)
	case doPostpone:
		i.postpone(now, o.delay, o.failing)
	case doEnd:
		i.requestEnd(now, o.failing)
	case doEndLater:
		i.requests++
		i.notBefore = now.Add(i.supervisor.unit.BackOff.wait(i.requests))
		i.postpone(now, delay{reason: probe.ReasonEnding, until: i.notBefore, detail: i.refusal}, o.failing)
	case doReplace:
		i.replace(now)
	case doGiveUp:
		i.giveUp(now, cmp.Or(o.err, errNotTerminated))
	case doFree:
		i.free()
		i.refuse(o.err)
	case doTerminate:
		i.terminate(o.wish)
	case doRelease:
		i.free()
		i.release(now, 0, o.wish)
	case doFinish:
		i.release(now, i.supervisor.unit.TerminationGracePeriod, o.wish)
	case doLetGo:
		i.free() // no restart is in progress for which its release must wait
		i.cancel(ErrReleased)
	}
}

// start records the first report of the driver about the instance.
func (i *instance) start(begun Begun) occurrence {
	if i.id != "" || begun.ID == "" {
		return occurrence{}
	}
	s, id, now := i.supervisor, probe.InstanceID(begun.ID), time.Now()
	i.id, i.begun, i.since = id, begun, now
	if !begun.Since.IsZero() {
		i.since = ago(begun.Since, now)
	}
	if s.resumes != id {
		s.setRetries(0)
		i.countUnobserved()
		return occurrence{event: begins}
	}
	if begun.Since.IsZero() {
		i.since = s.since // it started under an earlier engine
	}
	if m, _ := s.memory(); m.Budgeted {
		i.budgeted = true       // an earlier engine asked it to terminate
		if !s.unit.external() { // an external command ended with that engine, and is run again
			i.requests = 1
			return occurrence{event: continues}
		}
	}
	return occurrence{event: begins}
}

// countUnobserved counts the exit of an earlier engine's instance that ended before this engine saw it, perhaps at the
// request of that engine, and starts the back-off now. Without a Resumer, such an instance cannot be told from the next
// one.
func (i *instance) countUnobserved() {
	s := i.supervisor
	m, _ := s.memory()
	if _, ok := i.driver.(Resumer); !ok || !s.unit.external() || m.Exited || m.Instance == "" || m.Instance == noID {
		return
	}
	s.exits = s.unit.BackOff.count(s.exits, i.since.Sub(m.Since))
	i.notBefore = i.since.Add(s.unit.BackOff.wait(s.exits))
	s.remember(func(m *Memory) { m.NotBefore = i.notBefore })
}

// announce reports that the instance has started, or keeps running.
func (i *instance) announce(now time.Time) {
	s := i.supervisor
	message := "instance started"
	if s.resumes == i.id { // it was counted when it started
		s.started, message = max(s.started-1, 0), "instance goes on"
	}
	s.resumes = ""
	in := probe.Instance{
		Target: s.target, ID: i.id, Phase: probe.Running, Since: i.since,
		Managed: s.unit.restartsOnFailure() && i.phase != releasing, Terminating: i.phase.isTerminating(),
		Restarts: s.started, Detail: s.lastExit, LastExit: s.lastStatus, Address: i.begun.Address, Ports: i.begun.Ports,
	}
	if s.lastReason != probe.ReasonNoStart {
		i.provenAt = i.since.Add(s.unit.BackOff.wait(s.exits))
	}
	if in.Reason = i.runningReason(now); i.requests > 0 {
		in.Reason = probe.ReasonEnding
	}
	s.started++
	s.remember(func(m *Memory) {
		m.Instance, m.Since, m.Exited, m.Requested, m.Budgeted = i.id, i.since, false, i.requests > 0, i.budgeted
		m.Address, m.Ports = i.begun.Address, i.begun.Ports
	})
	if i.phase != releasing || !s.control.wish(s.target).isForgotten() {
		s.report(in)
	}
	if s.logsRetry() {
		s.log.Info(message, "instance", i.id, "restarts", in.Restarts)
	}
}

// check compares the instance with its unit, its probes and its deadline, and returns the resulting event.
func (i *instance) check(now time.Time) occurrence {
	s := i.supervisor
	w := s.control.wish(s.target)
	isRemoved := !i.phase.isLast() && !s.adopt(w) // or its unit has another driver
	i.setStop()
	if !isRemoved {
		s.reportAgain()
	}
	switch {
	case isRemoved && i.isNeeded(w): // the supervisor is woken when this changes
		return occurrence{}
	case isRemoved:
		return i.unwanted(w)
	case i.phase == releasing, i.phase == replacing:
		if now.Before(i.notBefore) {
			i.recheck.Reset(i.notBefore.Sub(now))
			return occurrence{}
		}
		return occurrence{event: expires}
	case i.phase == starting:
		i.checkStarting(now)
		return occurrence{}
	case i.phase.isLast():
		return occurrence{}
	case s.control.takeRequest(s.target):
		return occurrence{event: requested}
	case !s.unit.restartsOnFailure():
		return occurrence{event: ignores}
	}
	return i.checkProbes(now)
}

// unwanted returns the event for an instance whose target or driver is no longer wanted. An External instance is
// released, after the grace period of a restart in progress: half a restart could leave nothing running. An instance of
// an Outliving driver is released when the controller stops, unless it is already ending. This applies even before the
// driver has reported the instance: it may be one that an earlier engine left running.
func (i *instance) unwanted(w wish) occurrence {
	u, isEnding := i.supervisor.unit, i.phase == ending || i.phase == replacing
	switch {
	case u.external(), u.outlives() && w.releases && !isEnding:
		return occurrence{event: outlives, wish: w}
	case w.stopping && !w.isStopped:
		return occurrence{event: stops, wish: w}
	}
	return occurrence{event: unwanted, wish: w}
}

// isNeeded reports whether the instance must keep running for now because targets that were started after it have not
// ended. It is false for an instance that would be released, which keeps running anyway.
func (i *instance) isNeeded(w wish) bool {
	u := i.supervisor.unit
	return w.needed && !u.external() && !(u.outlives() && w.releases)
}

// runningReason returns the reason to report for an instance that runs and does not fail: probe.ReasonCrashLoop until
// it has run for as long as the back-off before it, then none.
func (i *instance) runningReason(now time.Time) probe.Reason {
	if !now.Before(i.provenAt) {
		return ""
	}
	i.recheck.Reset(i.provenAt.Sub(now))
	return probe.ReasonCrashLoop
}

// showRunning reports an instance that runs and does not fail, or the reason why its driver cannot see it.
func (i *instance) showRunning(now time.Time, managed bool) {
	reason, detail := i.runningReason(now), ""
	if n := i.notice; n.Reason.BlamesRuntime() {
		reason, detail = n.Reason, n.Detail
	}
	i.show(managed, reason, detail)
}

// checkProbes returns whether a failing probe restarts the instance now, and whether the restart waits.
func (i *instance) checkProbes(now time.Time) occurrence {
	failing, isFailing := i.failingProbe()
	switch {
	case i.phase == ending && now.Before(i.notBefore):
		i.recheck.Reset(i.notBefore.Sub(now)) // its grace period is not over
		return occurrence{}
	case !isFailing:
		return occurrence{event: recovers}
	case i.phase == ending:
		return occurrence{event: expires, failing: failing}
	}
	for _, ask := range restartChecks {
		switch d := ask(i, now, failing.ID); {
		case d.reason != "":
			return occurrence{event: waits, failing: failing, delay: d}
		case !d.until.IsZero():
			i.recheck.Reset(d.until.Sub(now))
			return occurrence{}
		}
	}
	return occurrence{event: fails, failing: failing}
}

// failingProbe returns the first startup or liveness probe that fails this instance, or else a failure that a Notifying
// driver reports. Readiness never restarts (K137), and verdicts about other instances do not count.
func (i *instance) failingProbe() (engine.Status, bool) {
	s := i.supervisor
	target, _ := s.control.config.Engine.Target(s.target)
	for _, p := range target.Probes {
		if p.FailsInstance(i.id) {
			return p, true
		}
	}
	if n := i.notice; n.Reason != "" && !n.Reason.BlamesRuntime() {
		return engine.Status{
			ID:     probe.ID{Target: s.target, Kind: probe.Liveness, Name: noticeName},
			Result: probe.Result{Reason: n.Reason, Detail: n.Detail},
		}, true
	}
	return engine.Status{}, false
}

// noticeName is the probe name in log records if a Notifying driver reports the failure.
const noticeName = "watchdog"

// checkStarting reports the driver's Notice about an instance that has not been reported as started. It also handles an
// operator's request for another instance and, for an External driver, the end of the back-off.
func (i *instance) checkStarting(now time.Time) {
	s, n := i.supervisor, i.notice
	if n.Reason == "" {
		return
	}
	switch {
	case i.isExternal:
		i.startAgain(now)
	case s.control.takeRequest(s.target):
		i.isReplaced = true
		s.log.Info("terminating process that has not started, a restart was requested", "grace_period", s.unit.TerminationGracePeriod)
		i.sendGrace(s.unit.TerminationGracePeriod)
	}
	in := s.reported
	if s.resumes == "" || !n.Reason.BlamesRuntime() {
		in = s.endedInstance(probe.Ended)
	}
	if in.Reason, in.Detail = n.Reason, n.Detail; in.Reason != s.reported.Reason || in.Detail != s.reported.Detail {
		s.report(in)
	}
}

// startAgain asks an External driver to start the next instance after one has exited, when the back-off is over or an
// operator requests it.
func (i *instance) startAgain(now time.Time) {
	s := i.supervisor
	m, _ := s.memory()
	switch {
	case s.control.takeRequest(s.target):
	case s.resumes != "", !m.Exited, !s.unit.restarts(m.Code, m.Requested), i.notice.Reason.BlamesRuntime():
		return
	case now.Before(i.notBefore):
		i.recheck.Reset(i.notBefore.Sub(now))
		return
	}
	i.inbox.reportsMu.Lock()
	if i.inbox.reports.begun.ID == "" {
		i.sendGrace(s.unit.TerminationGracePeriod)
	}
	i.inbox.reportsMu.Unlock()
	i.notBefore = now.Add(s.unit.BackOff.wait(max(s.exits, 1) + 1))
	i.recheck.Reset(i.notBefore.Sub(now))
}

// healthInterval is the time between two checks whether the engine, or a target that this one depends on, has
// recovered, or whether a pause is over.
const healthInterval = time.Second

// restartChecks return why a restart because of a failing probe must wait. They are called in this order; the first
// delay counts. While the restart waits, the instance is reported as not managed, so that its probes continue and may
// recover.
var restartChecks = [...]func(*instance, time.Time, probe.ID) delay{
	(*instance).outage,
	(*instance).backOff,
	(*instance).suppression,
	(*instance).unproven,
	(*instance).permission,
	(*instance).inquire,
	(*instance).acquire,
	(*instance).takeBudget,
}

// outage delays the restart while the driver cannot see or restart the instance.
func (i *instance) outage(now time.Time, _ probe.ID) delay {
	if n := i.notice; n.Reason.BlamesRuntime() {
		return delay{reason: n.Reason, until: now.Add(healthInterval), detail: n.Detail}
	}
	return delay{}
}

// backOff delays the restart of an instance that was started, or asked to terminate, too recently.
func (i *instance) backOff(now time.Time, _ probe.ID) delay {
	switch {
	case !now.Before(i.notBefore):
		return delay{}
	case i.requests > 0:
		return delay{reason: probe.ReasonEnding, until: i.notBefore, detail: i.refusal}
	}
	return delay{reason: probe.ReasonBackOff, until: i.notBefore}
}

// suppression delays a restart that is not wanted now, or would not help: see engine.Suppressed.
func (i *instance) suppression(now time.Time, _ probe.ID) delay {
	reason := i.supervisor.control.config.Engine.Admin().Suppressed(i.supervisor.target)
	if reason == "" {
		return delay{}
	}
	return delay{reason: reason, until: now.Add(healthInterval)}
}

// permission delays a restart that this engine may not make, or because of a verdict that the engine doubts.
func (i *instance) permission(now time.Time, failing probe.ID) delay {
	config, reason := &i.supervisor.control.config, probe.Reason("")
	switch {
	case !config.MayAct(i.supervisor.target):
		reason = probe.ReasonOwnership
	case config.Engine.Doubts(failing):
		reason = probe.ReasonDegraded
	default:
		return delay{}
	}
	return delay{reason: reason, until: now.Add(healthInterval)}
}

// takeBudget charges the restart to the budget, once. If the budget is exhausted, it delays the restart.
func (i *instance) takeBudget(now time.Time, _ probe.ID) delay {
	if i.budgeted {
		return delay{}
	}
	s := i.supervisor
	if m, _ := s.memory(); !now.Before(m.Charged.Add(s.control.config.Budget.Per)) { // otherwise the target is already charged
		if d := s.control.charge(s.target, now); d.reason != "" {
			return d
		}
		s.remember(func(m *Memory) { m.Charged = now })
		i.charged = true
	}
	i.budgeted = true
	return delay{}
}

// postpone reports why the restart waits. It releases a reservation of the disruption budget, which is made again when
// the restart is due.
func (i *instance) postpone(now time.Time, d delay, failing engine.Status) {
	i.recheck.Reset(d.until.Sub(now))
	if i.requests == 0 && d.reason != probe.ReasonFloor {
		i.free()
	}
	if !i.show(false, d.reason, d.detail) {
		return
	}
	attrs := []any{"instance", i.id, "probe", failing.ID.String(), "reason", reasonOf(failing), "delay_reason", d.reason, "delay", d.until.Sub(now).Round(time.Millisecond)}
	if d.group != "" {
		attrs = append(attrs, "group", d.group)
	}
	i.supervisor.log.Warn("probe failing, restart delayed", attrs...)
}

// reasonOf returns why a probe fails, for the log. The reason of a verdict restored from an earlier engine is unknown.
func reasonOf(failing engine.Status) probe.Reason {
	return cmp.Or(failing.Result.Reason, "restart.restored")
}

// forceTimeout is the time that a driver may take to kill an instance after the grace period.
const forceTimeout = 5 * time.Second

// requestEnd asks the driver to terminate the instance within the grace period of the failing probe or, if it has none,
// of the unit (K139).
func (i *instance) requestEnd(now time.Time, failing engine.Status) {
	s := i.supervisor
	grace := cmp.Or(failing.Rule.TerminationGracePeriod, s.unit.TerminationGracePeriod)
	i.requests = max(i.requests, 1)
	i.notBefore = now.Add(grace + forceTimeout)
	i.recheck.Reset(i.notBefore.Sub(now))
	i.failed = fmt.Sprintf("%s failed (%s)", failing.ID.InTarget(), reasonOf(failing))
	s.remember(func(m *Memory) {
		if m.Requested, m.Budgeted = true, true; !s.unit.external() {
			m.NotBefore = i.notBefore
		}
	})
	detail := i.failed
	if !i.isExternal { // otherwise its runtime decides how long it has
		detail += fmt.Sprintf(", it has %s to exit from %s on", grace, now.UTC().Format("15:04:05Z"))
	}
	i.show(true, probe.ReasonEnding, cmp.Or(i.refusal, detail))
	if s.logsRetry() {
		s.log.Warn("probe failing, terminating instance", "instance", i.id, "probe", failing.ID.String(), "reason", reasonOf(failing), "grace_period", grace)
	}
	i.sendGrace(grace)
}

// refuse reports why the driver could not terminate the instance, if that was asked because a probe fails.
func (i *instance) refuse(err error) {
	if in := i.supervisor.reported; in.Reason == probe.ReasonEnding {
		i.refusal = "not restarted: " + i.supervisor.control.config.Redact(err.Error())
		i.show(in.Managed, in.Reason, i.refusal)
	}
}

// settle reports the instance as running again, and withdraws a pending restart.
func (i *instance) settle(now time.Time, isCanceled bool) {
	s := i.supervisor
	i.inquiry, i.requests, i.refusal, i.failed = inquiry{}, 0, "", ""
	i.free()
	s.setRetries(0)
	if i.budgeted {
		i.budgeted = false
		s.remember(func(m *Memory) { m.Requested, m.Budgeted = false, false })
	}
	i.showRunning(now, true)
	if isCanceled {
		s.log.Info("probes no longer failing, restart canceled", "instance", i.id)
	}
}

// show reports the instance as managed or not, with a reason and an optional detail. It returns false if nothing
// changed since the last report.
func (i *instance) show(managed bool, reason probe.Reason, detail string) bool {
	s := i.supervisor
	if !managed {
		s.withdrawRequest()
	}
	in := s.reported
	isPlain := reason == "" || reason == probe.ReasonCrashLoop || reason == probe.ReasonBackOff // the exit of the previous instance explains it
	switch {
	case detail != "" || !isPlain:
		in.Detail, i.explained = detail, true
	case i.explained:
		in.Detail, i.explained = s.lastExit, false
	}
	in.Managed, in.Reason = managed, reason
	if in.Equal(s.reported) {
		return false
	}
	s.report(in)
	return true
}

// terminate asks the driver to terminate the instance within the unit's grace period.
func (i *instance) terminate(w wish) {
	s := i.supervisor
	i.sendGrace(s.unit.TerminationGracePeriod)
	if i.id == "" {
		return
	}
	in, message := s.reported, "terminating instance"
	in.Terminating = true
	switch {
	case w.isDone:
		message = "terminating instance: all targets that it serves have exited"
	case w.isStopped:
		message, in = "terminating instance, an operator has stopped the target", w.stopped.reportedAs(in)
	case i.phase == shuttingDown:
		message, in.Reason = "terminating instance, the engine ends", probe.ReasonShutdown
	case w.wanted:
		message = "terminating instance, its configuration has changed"
	}
	s.report(in)
	s.log.Info(message, "instance", i.id, "grace_period", s.unit.TerminationGracePeriod)
}

// release sets the time after which the instance keeps running without the engine.
func (i *instance) release(now time.Time, grace time.Duration, w wish) {
	s := i.supervisor
	i.notBefore = now.Add(grace)
	i.recheck.Reset(grace)
	if i.id == "" {
		return
	}
	if !w.isForgotten() && !w.replaced {
		in := s.reported
		in.Managed, in.Reason = false, ""
		s.report(in)
	}
	s.log.Info("releasing instance: it keeps running without the engine", "instance", i.id, "grace_period", grace)
}

// sendGrace asks the driver to terminate the instance. It replaces a grace period that the driver has not received yet.
func (i *instance) sendGrace(grace time.Duration) {
	i.dropGrace()
	i.end <- grace // never blocks: this goroutine is the only sender
}

// dropGrace withdraws a grace period that the driver has not received yet.
func (i *instance) dropGrace() {
	select {
	case <-i.end:
	default:
	}
}

// finish records that the driver's Run has returned. If an instance was released but exited nevertheless, it is
// recorded like any other exit, for the next engine.
func (i *instance) finish(exit Exit) termination {
	s := i.supervisor
	w := s.control.wish(s.target)
	if !i.phase.isLast() && !s.adopt(w) {
		i.handle(i.unwanted(w))
	}
	if exit.ByOthers {
		i.disown()
	}
	exit.Output = s.control.config.Redact(exit.Output)
	end := termination{exit: exit, started: i.id != "", cause: i.cause()}
	if i.phase == releasing && end.started && !s.unit.external() && w.releases && !errors.Is(exit.Err, ErrReleased) {
		end.cause = i.probeCause()
	}
	if end.started {
		end.lasted = time.Since(i.since)
	}
	switch end.cause {
	case byProbe:
		end.why = cmp.Or(i.notice.Detail, i.failed)
	case byOthers:
		end.why = "stopped or restarted by others"
	}
	if end.cause.isFinal() {
		i.reportTerminated(end, w)
	}
	return end
}

// disown reverts the charges of the restart, since somebody else has stopped or restarted the instance.
func (i *instance) disown() {
	s := i.supervisor
	i.byOthers, i.requests = true, 0
	i.free()
	if i.charged {
		s.control.refund(s.target)
		s.remember(func(m *Memory) { m.Charged = time.Time{} })
	}
}

// cause returns why the instance exited or was released.
func (i *instance) cause() cause {
	switch {
	case i.phase == shuttingDown:
		return byShutdown
	case i.phase == terminating, i.phase == releasing:
		return byRemoval
	case i.phase == replacing, i.isReplaced:
		return byOperator
	}
	return i.probeCause()
}

// probeCause returns why an instance exited that is still wanted.
func (i *instance) probeCause() cause {
	if i.requests > 0 {
		return byProbe
	}
	if i.byOthers {
		return byOthers
	}
	return byItself
}

// reportTerminated reports the end of an instance that was terminating. It reports nothing about an instance that was
// released because the controller stops, since that keeps running, nor about one that the driver never reported, unless
// it comes from an earlier engine and thus was reported before. An External instance that was released keeps running:
// its last report is withdrawn instead (see Admin.Withdraw).
func (i *instance) reportTerminated(end termination, w wish) {
	s := i.supervisor
	switch {
	case i.phase == releasing && w.stopping:
	case i.id == "" && (s.resumes == "" || errors.Is(end.exit.Err, ErrNotTakenOver)):
	case i.phase == releasing && s.unit.external() && end.exit.Err != nil:
		s.reported = probe.Instance{}
		s.control.config.Engine.Admin().Withdraw(s.target)
	default:
		s.reportEnd(end, probe.Ended, time.Time{})
	}
}
