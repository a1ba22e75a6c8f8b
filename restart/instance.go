package restart

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// instance is one call of a driver's Run, from start to return. It belongs to its
// supervisor's goroutine.
type instance struct {
	*supervisor
	driver  Driver // whose Run it is; after a reload the unit has another, equal one
	cancel  context.CancelCauseFunc
	began   chan string        // capacity 1
	end     chan time.Duration // capacity 1
	exit    chan Exit          // capacity 1
	failed  chan error         // capacity 1: why the driver could not terminate it
	recheck *time.Timer        // when to check the probes again

	id          string    // empty until it has started
	since       time.Time // when it started
	provenAt    time.Time // when it has run for as long as the back-off before it; until then it is in a crash loop
	notBefore   time.Time // earliest time of the next request to terminate; while terminating, of the release
	requests    int       // requests to terminate, since a probe fails
	budgeted    bool      // the budget has allowed the restart
	released    bool      // it keeps running without the engine
	terminating bool      // it is terminating because the unit was removed, its driver has changed, or an operator has stopped the target
	shutdown    bool      // it is terminating because the engine ends
	replacing   bool      // the driver was asked to terminate it, since an operator has asked for a restart
	inquiry     inquiry   // whether its dependencies fail, since a probe fails
	reserves    bool      // the floor was asked for its restart
	withheldBy  string    // the group that withholds it; empty for none
}

// runInstance starts an instance and returns how it exited. An External instance
// is not asked to terminate earlier than notBefore.
func (s *supervisor) runInstance(notBefore time.Time) termination {
	ctx, cancel := context.WithCancelCause(s.control.forced)
	defer cancel(nil)
	i := &instance{
		supervisor: s, driver: s.unit.Driver, cancel: cancel, notBefore: notBefore,
		began: make(chan string, 1), end: make(chan time.Duration, 1), exit: make(chan Exit, 1),
		failed: make(chan error, 1), recheck: time.NewTimer(0),
	}
	defer i.recheck.Stop()
	i.control.takeRequest(i.target) // a new instance is what it asks for
	i.setStop()
	if d, ok := i.driver.(Reporting); ok {
		d.SetFailed(i.onFailed)
	}
	go i.run(ctx)
	for {
		select {
		case id := <-i.began:
			i.reportStarted(id)
		case exit := <-i.exit:
			return i.finish(exit)
		case reason := <-i.failed:
			i.unreserve()
			i.giveUpReplacing(reason)
			if i.released { // nothing is under way that its release has to wait for
				i.notBefore = time.Now()
			}
		case <-i.wake:
		case <-i.recheck.C:
		}
		i.check()
	}
}

// run calls the driver. It turns a panic, and a runtime.Goexit, into an error.
func (i *instance) run(ctx context.Context) {
	exit := Exit{Code: -1, Err: errors.New("driver has ended its goroutine")}
	defer func() {
		if r := recover(); r != nil {
			exit.Err = fmt.Errorf("driver panicked: %v", r)
			i.log.Error("driver panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
		i.exit <- exit
	}()
	exit = i.driver.Run(ctx, i.onBegan, i.end)
}

// setStop passes on by which signal the instance is asked to exit, and how long it may take to exit
// without the engine.
func (i *instance) setStop() {
	if d, ok := i.driver.(Stopping); ok {
		d.SetStop(StopSettings{GracePeriod: i.unit.TerminationGracePeriod, Signal: i.unit.StopSignal})
	}
}

// onBegan is the function that the driver calls with the instance's ID.
func (i *instance) onBegan(id string) {
	select {
	case i.began <- id:
	default: // the driver has called it before
	}
}

// onFailed is the function that a Reporting driver calls when it could not terminate the instance.
func (i *instance) onFailed(reason error) {
	select {
	case i.failed <- reason:
	default: // an earlier reason has not been read yet
	}
}

func (i *instance) reportStarted(id string) {
	if i.id != "" || id == "" {
		return
	}
	i.id, i.since = id, time.Now()
	message := "instance started"
	if i.resumes == id { // it had started before, and was counted
		i.since, i.started, message = i.supervisor.since, max(i.started-1, 0), "instance goes on"
		i.resumeRequest()
	} else {
		i.setRetries(0)
		i.countUnobserved()
	}
	i.resumes = ""
	in := probe.Instance{
		Target: i.target, ID: id, Phase: probe.Running, Since: i.since,
		Managed: i.unit.restartsOnFailure() && !i.released, Terminating: i.terminating && !i.released,
		Restarts: i.started, Detail: i.lastExit, LastExit: i.lastStatus,
	}
	if i.lastReason != probe.ReasonNoStart {
		i.provenAt = i.since.Add(i.unit.BackOff.wait(i.exits))
	}
	if in.Reason = i.runningReason(time.Now()); i.requests > 0 {
		in.Reason = probe.ReasonEnding
	}
	i.started++
	i.remember(func(m *Memory) {
		m.Instance, m.Since, m.Exited, m.Requested, m.Budgeted = id, i.since, false, i.requests > 0, i.budgeted
	})
	if !i.isForgotten() {
		i.report(in)
	}
	if i.logsRetry() {
		i.log.Info(message, "instance", id, "restarts", in.Restarts)
	}
}

// countUnobserved counts the exit of the instance of an earlier engine that has ended before this one has
// seen it, maybe at the request of that engine, and begins the back-off now. Without a Resumer such an instance
// is not known from the next one.
func (i *instance) countUnobserved() {
	m, _ := i.memory()
	if _, ok := i.driver.(Resumer); !ok || !i.unit.external() || m.Exited || m.Instance == "" || m.Instance == noID {
		return
	}
	i.exits = i.unit.BackOff.count(i.exits, i.since.Sub(m.Since))
	i.notBefore = i.since.Add(i.unit.BackOff.wait(i.exits))
	i.remember(func(m *Memory) { m.NotBefore = i.notBefore })
}

// resumeRequest goes on with a request to terminate that an earlier engine has made, and
// taken from the budget. The command of an External driver has ended with that engine, so it
// is run again.
func (i *instance) resumeRequest() {
	m, _ := i.memory()
	if i.budgeted = m.isBudgeted(); i.budgeted && !i.unit.external() {
		i.requests = 1
	}
}

// check compares the instance with its unit and its probes, and acts on it.
func (i *instance) check() {
	now := time.Now()
	isRemoved := !i.terminating && !i.refresh() // or has another driver
	i.setStop()
	if !isRemoved {
		i.reportAgain()
	}
	switch {
	case i.terminating && i.released && !now.Before(i.notBefore):
		i.cancel(ErrReleased)
	case i.terminating:
	case isRemoved && i.isNeeded(): // woken when that has changed
	case isRemoved:
		i.terminate(now)
	case i.id == "":
	case i.replacing:
		i.checkReplaced(now)
	case i.control.takeRequest(i.target):
		i.requestRestart(now)
	case i.unit.restartsOnFailure():
		i.checkProbes(now)
	default:
		i.setManaged(false, i.runningReason(now))
	}
}

// runningReason returns the reason to report about an instance that runs and does not fail: that
// it is in a crash loop until it has run for as long as the back-off before it.
func (i *instance) runningReason(now time.Time) probe.Reason {
	if !now.Before(i.provenAt) {
		return ""
	}
	i.recheck.Reset(i.provenAt.Sub(now))
	return probe.ReasonCrashLoop
}

// healthInterval is the time between two checks whether the engine, or a target that this one
// depends on, has recovered, or a pause has ended.
const healthInterval = time.Second

// checkProbes asks the driver to terminate the instance when a probe fails, the engine does not
// doubt that, nothing suppresses it (see isSuppressed), its dependencies have been asked (see
// inquiry), and back-off, floor and budget allow it. Until they do the instance is reported as not managed, so that
// its probes go on and may recover.
func (i *instance) checkProbes(now time.Time) {
	failing, fails := i.failingProbe()
	switch {
	case i.ending() && now.Before(i.notBefore):
		i.recheck.Reset(i.notBefore.Sub(now)) // its grace period is not over
	case !fails:
		i.clearFailure(now)
	case i.ending(): // the driver did not terminate it in time
		i.requests++
		i.notBefore = now.Add(i.unit.BackOff.wait(i.requests))
		i.postpone(now, i.notBefore, probe.ReasonEnding, failing)
	case now.Before(i.notBefore):
		reason := probe.ReasonBackOff
		if i.requests > 0 {
			reason = probe.ReasonEnding
		}
		i.postpone(now, i.notBefore, reason, failing)
	case i.isSuppressed(now, failing):
	case i.control.config.Engine.Doubts(failing.ID):
		i.postpone(now, now.Add(healthInterval), probe.ReasonDegraded, failing)
	case i.inquires(now, failing):
	case !i.reserve(now, failing):
	case !i.takeBudget(now, failing):
	default:
		i.requestEnd(now, failing)
	}
}

// failingProbe returns the first startup or liveness probe that fails this
// instance. Readiness never restarts (K137), and verdicts about other instances do
// not count.
func (i *instance) failingProbe() (engine.Status, bool) {
	target, _ := i.control.config.Engine.Target(i.target)
	for _, p := range target.Probes {
		if p.Verdict == probe.Failing && p.Instance == i.id && p.ID.Kind != probe.Readiness {
			return p, true
		}
	}
	return engine.Status{}, false
}

// reasonOf returns why a probe fails, for the log. Of a verdict of an earlier engine that is not
// known.
func reasonOf(failing engine.Status) probe.Reason {
	return cmp.Or(failing.Result.Reason, probe.ReasonRestored)
}

// isSuppressed reports whether a restart is not wanted now, or would not help (see engine.Suppressed), or
// is not for this engine. Then it is postponed.
func (i *instance) isSuppressed(now time.Time, failing engine.Status) bool {
	reason := i.control.config.Engine.Admin().Suppressed(i.target)
	if reason == "" && !i.control.config.MayAct(i.target) {
		reason = probe.ReasonOwnership
	}
	if reason != "" {
		i.postpone(now, now.Add(healthInterval), reason, failing)
	}
	return reason != ""
}

// takeBudget takes the restart from the budget, once, or postpones it.
func (i *instance) takeBudget(now time.Time, failing engine.Status) bool {
	if i.budgeted {
		return true
	}
	again, ok := i.control.spend(now)
	if !ok {
		i.postpone(now, again, probe.ReasonBudget, failing)
	}
	i.budgeted = ok
	return ok
}

// postpone delays the request to terminate until a time, and reports the reason. What the floor has reserved is
// reserved again when the time has come.
func (i *instance) postpone(now, until time.Time, reason probe.Reason, failing engine.Status) {
	i.recheck.Reset(until.Sub(now))
	if i.requests == 0 && reason != probe.ReasonFloor {
		i.unreserve()
	}
	if !i.setManaged(false, reason) {
		return
	}
	attrs := []any{"instance", i.id, "probe", failing.ID.String(), "reason", reasonOf(failing), "delay_reason", reason, "delay", until.Sub(now).Round(time.Millisecond)}
	if reason == probe.ReasonFloor {
		attrs = append(attrs, "group", i.withheldBy)
	}
	i.log.Warn("probe failing, restart delayed", attrs...)
}

// ending reports whether the driver was asked to terminate the instance, and has
// time left to do it.
func (i *instance) ending() bool { return i.requests > 0 && i.reported.Managed }

// forceTimeout is how long a driver may take to kill an instance, after the
// grace period.
const forceTimeout = 5 * time.Second

// requestEnd asks the driver to terminate the instance within the grace period
// of the failing probe, or else the unit's (K139).
func (i *instance) requestEnd(now time.Time, failing engine.Status) {
	grace := cmp.Or(failing.Rule.TerminationGracePeriod, i.unit.TerminationGracePeriod)
	i.requests = max(i.requests, 1)
	i.notBefore = now.Add(grace + forceTimeout)
	i.recheck.Reset(i.notBefore.Sub(now))
	i.remember(func(m *Memory) {
		if m.Requested, m.Budgeted = true, true; !i.unit.external() {
			m.NotBefore = i.notBefore
		}
	})
	i.setManaged(true, probe.ReasonEnding)
	if i.logsRetry() {
		i.log.Warn("probe failing, terminating instance", "instance", i.id, "probe", failing.ID.String(), "reason", reasonOf(failing), "grace_period", grace)
	}
	i.sendGrace(grace)
}

// clearFailure withdraws what was reported while a probe failed.
func (i *instance) clearFailure(now time.Time) {
	i.inquiry = inquiry{}
	i.unreserve()
	i.setRetries(0)
	if i.budgeted {
		i.budgeted = false
		i.remember(func(m *Memory) { m.Requested, m.Budgeted = false, false })
	}
	failed := !i.reported.Managed || i.requests > 0
	if !i.setManaged(true, i.runningReason(now)) || !failed {
		return
	}
	i.requests = 0
	i.log.Info("probes no longer failing, restart canceled", "instance", i.id)
}

// setManaged reports the instance as managed or not, for a reason. It returns
// false when that was reported before.
func (i *instance) setManaged(managed bool, reason probe.Reason) bool {
	if !managed {
		i.withdrawRequest()
	}
	in := i.reported
	switch {
	case reason == probe.ReasonFloor:
		in.Detail = withheldDetail(i.withheldBy)
	case in.Reason == probe.ReasonFloor:
		in.Detail = i.lastExit
	}
	in.Managed, in.Reason = managed, reason
	if in == i.reported {
		return false
	}
	i.report(in)
	return true
}

// terminate terminates the instance because its unit was removed or its driver has
// changed. An External instance is released instead, after the grace period of a
// restart that is under way, since a probe fails or an operator has asked for it: half a restart could leave nothing running. So is an
// instance of an Outliving driver when the controller stops, unless it is ending, even
// before the driver has reported it: it may be one that an earlier engine has left running.
func (i *instance) terminate(now time.Time) {
	message, grace, underWay := "terminating instance", i.unit.TerminationGracePeriod, i.ending() || i.replacing
	i.terminating = true
	in := i.reported
	switch {
	case i.unit.external() || i.unit.outlives() && i.control.releases() && !underWay:
		i.released = true
		message = "releasing instance, it keeps running without the engine"
		if !underWay {
			grace = 0
			i.unreserve()
		}
		i.notBefore = now.Add(grace)
		i.recheck.Reset(grace)
		in.Managed, in.Reason = false, ""
	default:
		i.sendGrace(grace)
		in.Terminating = true
		if _, stopped := i.control.stoppedBy(i.target); stopped {
			message = "terminating instance, an operator has stopped the target"
		} else if i.control.IsStopping() {
			message, in.Reason, i.shutdown = "terminating instance, the engine ends", probe.ReasonShutdown, true
		} else if _, wanted := i.control.unit(i.target); wanted {
			message = "terminating instance, its configuration has changed"
		}
	}
	if i.id == "" {
		return
	}
	if !i.isForgotten() {
		i.report(in)
	}
	i.log.Info(message, "instance", i.id, "grace_period", grace)
}

// isForgotten reports whether the instance is released because its unit was removed. Until
// that is reported, it stays as it was: the target has lost its probes, and a running instance
// of a target without probes is started and ready.
func (i *instance) isForgotten() bool {
	_, wanted := i.control.unit(i.target)
	return i.released && !wanted && !i.control.IsStopping()
}

// sendGrace asks the driver to terminate the instance. It replaces a grace
// period that the driver has not received yet.
func (i *instance) sendGrace(grace time.Duration) {
	select {
	case <-i.end:
	default:
	}
	i.end <- grace // never blocks: this goroutine is the only sender
}

// finish records that the driver's Run has returned. An instance that has exited although it
// was released has exited like any other: the next engine must know.
func (i *instance) finish(exit Exit) termination {
	select {
	case id := <-i.began:
		i.reportStarted(id)
	default:
	}
	if !i.terminating && !i.refresh() {
		i.terminate(time.Now())
	}
	exit.Output = i.control.config.Redact(exit.Output)
	end := termination{exit: exit, started: i.id != "", requested: i.requests > 0, terminating: i.terminating, shutdown: i.shutdown, replaced: i.replacing}
	if i.released && end.started && !i.unit.external() && i.control.releases() && !errors.Is(exit.Err, ErrReleased) {
		end.terminating = false
	}
	if end.started {
		end.lasted = time.Since(i.since)
	}
	if end.terminating {
		i.reportTerminated(end)
	}
	return end
}

// reportTerminated reports the end of an instance that was terminating. An instance that was
// released keeps running without the engine when the controller stops. One that the driver has
// not reported was reported all the same if it is that of an earlier engine.
func (i *instance) reportTerminated(end termination) {
	switch {
	case i.released && i.control.IsStopping():
	case i.id == "" && (i.resumes == "" || errors.Is(end.exit.Err, ErrNotTakenOver)):
	default:
		i.reportEnd(end, probe.Ended, time.Time{})
	}
}
