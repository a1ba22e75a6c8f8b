package restart

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/internal/wake"
	"github.com/sonde-probe/sonde/probe"
)

// supervisor runs the instances of one target, one after another. Its fields belong to the goroutine of run; other
// goroutines only set wake.
type supervisor struct {
	control *Controller
	target  string
	log     *slog.Logger
	wake    wake.Signal // check the unit and the probes

	unit       Unit           // the settings in effect
	reported   probe.Instance // the last Report; ID is empty before the first
	applies    int            // the counter for Controller.repeat
	started    int32          // number of instances started
	exits      int            // number of exits in a row, for the back-off
	lastExit   string         // how the previous instance exited, and its output; empty without one
	lastReason probe.Reason   // the same as a code
	lastStatus probe.Exit     // exit of the latest instance that has exited
	alerted    bool           // an error was logged about the current run of exits

	retries  int       // see setRetries
	restored restored  // until resume is called
	resumes  string    // ID of the instance to resume, until an instance is reported; empty for none
	since    time.Time // when that instance started

	remembered *Memory // for Controller.Memory; nil before the first. Never modified, only replaced, with unitsMu held
}

// newSupervisor needs unitsMu.
func (c *Controller) newSupervisor(target string) *supervisor {
	s := &supervisor{control: c, target: target, log: c.config.Logger.With("target", target), wake: wake.New()}
	if r, ok := c.takeRestored(target); ok {
		s.restored, s.remembered = r, &r.Memory
	}
	return s
}

// run supervises the target until its unit is removed. The last report comes before the release, so that no report of a
// later supervisor can precede it.
func (s *supervisor) run() {
	for released := false; !released; released = s.control.release(s.target) {
		for s.reset() {
			s.supervise()
		}
		s.reportGone()
	}
	s.control.config.Changed(s.target)
}

// reset starts over with the target's current unit, if any, and with a memory that was taken over in the meantime. It
// reports whether the unit is wanted.
func (s *supervisor) reset() (wanted bool) {
	w := s.control.wish(s.target)
	s.unit = w.unit
	s.started, s.exits, s.alerted = 0, 0, false
	s.setRetries(0)
	s.control.unitsMu.Lock()
	r, isTakenOver := s.control.takeRestored(s.target)
	if isTakenOver {
		s.remembered = &r.Memory
	}
	s.control.unitsMu.Unlock()
	if isTakenOver {
		s.restored = r
		s.restored.goesOn = s.unit.resume(s.target, r.Memory)
	}
	return w.wanted
}

// reportGone reports that no further instance follows. A running External instance keeps its last report.
func (s *supervisor) reportGone() {
	if s.reported.ID == "" || s.reported.Phase == probe.Running || s.reported.Phase == probe.Gone && !s.reported.Retained {
		return
	}
	in := s.reported
	if in.Phase != probe.Gone {
		in.Phase, in.Since, in.Reason, in.Detail = probe.Gone, time.Now(), s.lastReason, s.lastExit
	}
	in.Retained = false
	s.report(in)
}

// refresh adopts settings that Apply has changed. It returns false if the instance must be terminated or released: the
// unit was removed, its driver has changed, an operator has stopped the target, or another memory of it was taken over.
func (s *supervisor) refresh() (same bool) { return s.adopt(s.control.wish(s.target)) }

// adopt is refresh for a desired state that the caller has read already.
func (s *supervisor) adopt(w wish) (same bool) {
	if !w.wanted || !w.unit.continues(s.unit) || w.replaced {
		return false
	}
	s.unit = w.unit
	return !w.isStopped
}

// takeOverPause is the time before the second attempt to take over an instance of an earlier engine. It doubles after
// each attempt, up to maxTakeOverPause.
const (
	takeOverPause    = 2 * time.Second
	maxTakeOverPause = time.Minute
)

// supervise runs instances until the unit is removed or its driver has changed. Even then it takes over an instance of
// an earlier engine, to end it.
func (s *supervisor) supervise() {
	notBefore, pause := s.resume(), takeOverPause
	s.waitWhileStopped()
	s.waitForOthers()
	for s.refresh() || s.resumes != "" && !s.control.IsStopping() {
		end := s.runInstance(notBefore)
		if s.resumes != "" && errors.Is(end.exit.Err, ErrNotTakenOver) {
			s.log.Warn("instance not taken over, retrying", "instance", s.resumes, "error", end.exit.Err, "retry_in", pause)
			s.pause(pause)
			pause = min(2*pause, maxTakeOverPause)
			continue
		}
		if s.resumes = ""; end.cause.isFinal() {
			return
		}
		if end.started && s.unit.external() && isRetried(end.exit.Err) {
			s.retryRestart(end.exit.Err)
			continue
		}
		if errors.Is(end.exit.Err, ErrShortage) || errors.Is(end.exit.Err, ErrNotTakenOver) {
			s.retryStart(end.exit.Err)
			continue
		}
		s.setRetries(0)
		if end.cause == byOperator || end.cause == byOthers {
			s.restarted(end)
			continue
		}
		s.exits = s.unit.BackOff.count(s.exits, end.lasted)
		notBefore = time.Now().Add(s.unit.BackOff.wait(s.exits))
		s.remember(func(m *Memory) {
			m.NotBefore, m.Exited, m.Code, m.Requested, m.Budgeted = notBefore, true, end.exit.Code, end.cause == byProbe, false
			m.LastExit, m.LastReason = end.detail(""), end.reason()
		})
		switch {
		case !s.unit.restarts(end.exit.Code, end.cause == byProbe):
			s.reportEnd(end, probe.Gone, time.Time{})
			if !s.unit.external() { // somebody else may start an External instance again
				s.waitForPolicy(end)
			}
		case s.unit.external() && end.exit.Err == nil:
			s.reportEnd(end, probe.Ended, time.Time{})
		default:
			s.reportEnd(end, probe.Ended, notBefore)
			s.waitUntil(notBefore)
		}
	}
}

// isRetried reports whether the restart of an External instance is retried after an error.
func isRetried(err error) bool {
	var withheld *WithheldError
	return errors.Is(err, ErrShortage) || errors.Is(err, ErrInterrupted) || errors.As(err, &withheld)
}

// pause returns after d, or when the controller stops.
func (s *supervisor) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for !s.control.IsStopping() {
		select {
		case <-t.C:
			return
		case <-s.wake:
		}
	}
}

// retryPause is the minimum time before the next attempt to start an instance that could not be started through no
// fault of the target. The time grows by retryShare per waiting target, up to maxRetryPause, so that many targets do
// not exhaust the resource that the engine lacks.
const (
	retryPause    = 2 * time.Second
	retryShare    = 500 * time.Millisecond
	maxRetryPause = 16 * time.Second
)

// retryIn returns the time before the next attempt. It varies by up to a quarter between targets, since they all lack
// the same resource at the same time.
func (s *supervisor) retryIn() time.Duration {
	waiting := time.Duration(s.control.retrying.Load())
	pause := max(retryPause, min(waiting*retryShare, maxRetryPause))
	h := fnv.New32a()
	h.Write([]byte(s.target))
	return pause*3/4 + pause/2*time.Duration(h.Sum32()%1024)/1024
}

// setRetries sets the number of consecutive calls of Run that could not start or restart an instance.
func (s *supervisor) setRetries(n int) {
	s.control.retrying.Add(int64(one(n > 0) - one(s.retries > 0)))
	s.retries = n
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxRetriesUnlogged is the maximum number of retries between two log records.
const maxRetriesUnlogged = 256

// retryStart reports why no instance could be started, and waits for the next attempt.
func (s *supervisor) retryStart(err error) {
	s.setRetries(s.retries + 1)
	if s.logsRetry() {
		s.log.Warn("instance not started, retrying", "error", err, "retries", s.retries-1, "retry_in", s.retryIn())
	}
	in := s.endedInstance(probe.Ended)
	in.Reason, in.Detail = probe.ReasonNoStart, fmt.Sprintf("retrying within %v: %v", maxRetryPause*5/4, err)
	if errors.Is(err, ErrShortage) {
		in.Reason = shortageReason(err)
	}
	if in.Reason != s.reported.Reason || in.Detail != s.reported.Detail {
		s.report(in)
	}
	s.waitUntil(time.Now().Add(s.retryIn()))
}

// retryRestart reports why the restart of an External instance could not begin or finish, and waits for the next
// attempt. The instance keeps running, and its probes may recover.
func (s *supervisor) retryRestart(err error) {
	s.control.config.Disruptions.Release(s.target)
	s.withdrawRequest()
	s.setRetries(s.retries + 1)
	pause, atMost := s.retryIn(), maxRetryPause*5/4
	if errors.Is(err, ErrInterrupted) { // no shared resource is exhausted, so the pause need not grow
		pause, atMost = healthInterval, healthInterval
	}
	if s.logsRetry() {
		s.log.Warn("instance not restarted, retrying", "instance", s.reported.ID, "error", err, "retries", s.retries-1, "retry_in", pause)
	}
	in := s.reported
	s.resumes, s.since = in.ID, in.Since
	in.Managed, in.Reason, in.Detail = false, shortageReason(err), fmt.Sprintf("retrying within %v: %v", atMost, err)
	if errors.Is(err, ErrInterrupted) {
		in.Reason = probe.ReasonOwnership
	}
	var withheld *WithheldError
	if errors.As(err, &withheld) {
		in.Reason, in.Detail = probe.ReasonFloor, withheld.Error()
	}
	s.report(in)
	s.waitUntil(time.Now().Add(pause))
	if d, ok := s.unit.Driver.(Resumer); ok { // a reload may have replaced the driver
		d.Resume(in.ID)
	}
}

// logsRetry reports whether the current retry is logged. Without a retry, it returns true.
func (s *supervisor) logsRetry() bool {
	return s.retries&(s.retries-1) == 0 || s.retries%maxRetriesUnlogged == 0
}

// waitUntil returns at the given time, when a restart is requested, or when refresh returns false.
func (s *supervisor) waitUntil(at time.Time) {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	for s.refresh() && !s.control.takeRequest(s.target) {
		s.reportAgain()
		select {
		case <-t.C:
			return
		case <-s.wake:
		}
	}
}

// waitForPolicy returns when the unit's policy requires a restart after the given exit, when a restart is requested, or
// when refresh returns false.
func (s *supervisor) waitForPolicy(end termination) {
	for s.refresh() && !s.unit.restarts(end.exit.Code, end.cause == byProbe) && !s.control.takeRequest(s.target) {
		s.reportAgain()
		<-s.wake
	}
}

// reportAgain repeats the last report after Apply or TakeOver: the target may have lost its probes and gained others
// (see Engine.Report).
func (s *supervisor) reportAgain() {
	if s.reported.ID != "" {
		s.control.repeat(s.reported, &s.applies)
	}
}

// noID is the instance ID of a target whose first instance failed to start.
const noID = "none"

// reportEnd reports that an instance has exited or failed to start. notBefore is the time of the next start, after the
// back-off, or zero.
func (s *supervisor) reportEnd(end termination, phase probe.Phase, notBefore time.Time) {
	var wait time.Duration
	if !notBefore.IsZero() {
		wait = s.unit.BackOff.wait(s.exits)
	}
	s.lastExit, s.lastReason = end.detail(""), end.reason()
	if end.exit.Err == nil && !s.unit.external() {
		s.lastStatus = probe.Exit{Known: true, Status: end.exit.Code}
	}
	in := s.endedInstance(phase)
	in.Reason, in.Detail = s.lastReason, s.lastExit
	if end.hasCompleted() && phase == probe.Gone {
		in.Reason = probe.ReasonCompleted
	}
	if wait > 0 {
		in.Detail = end.detail(fmt.Sprintf("; next start in %s (back-off), at %s", probe.Brief(wait), notBefore.UTC().Format(time.RFC3339)))
	}
	if wait > 0 && in.Reason != probe.ReasonNoStart {
		in.Reason = probe.ReasonBackOff
	}
	s.report(in)
	exit := slog.Int("exit_code", end.exit.Code)
	if end.exit.Err != nil {
		exit = slog.Any("error", end.exit.Err)
	}
	level, event := s.severity(end, in.Phase)
	s.log.Log(context.Background(), level, event, "instance", in.ID, exit, "reason", s.lastReason, "phase", in.Phase, "restarts", in.Restarts, "back_off", wait)
}

// severity returns the level and the message of the log record about an exit. A failed start or a repeated exit is
// logged as an error, once per run of exits, which ends when an instance has run for longer than BackOff.Reset. The
// failure of an instance without a successor is an error as well.
func (s *supervisor) severity(end termination, phase probe.Phase) (slog.Level, string) {
	if s.exits <= 1 {
		s.alerted = false
	}
	failed := end.cause == byItself && !end.hasCompleted()
	level, message := slog.LevelInfo, "instance exited"
	if failed {
		level = slog.LevelWarn
	}
	switch {
	case end.cause.isFinal():
		return level, message
	case end.reason() == probe.ReasonNoStart:
		message = "instance failed to start"
	case phase == probe.Gone && (failed || end.cause == byProbe):
		message = "instance exited and is not restarted"
	case s.exits > 1:
		message = "instance exited again, crash loop"
	default:
		return level, message
	}
	if !s.alerted {
		s.alerted, level = true, slog.LevelError
	}
	return level, message
}

// endedInstance returns the last reported instance in its new phase. Before the first instance, it returns one that
// waits for its start.
func (s *supervisor) endedInstance(phase probe.Phase) probe.Instance {
	in := s.reported
	in.Target, in.Phase, in.Since, in.Managed, in.Terminating = s.target, phase, time.Now(), false, false
	in.Retained, in.LastExit = phase == probe.Gone, s.lastStatus
	if in.ID == "" || in.ID == noID {
		if in.ID = noID; phase == probe.Ended {
			in.Phase = probe.Waiting
		}
	}
	return in
}

func (s *supervisor) report(in probe.Instance) {
	before := s.reported.Phase
	s.reported = in
	s.control.config.Engine.Report(in)
	if (before == probe.Gone) != (in.Phase == probe.Gone) {
		s.wakeServing()
	}
}

// termination describes the exit of an instance, or its failure to start.
type termination struct {
	exit    Exit
	started bool
	cause   cause
	lasted  time.Duration // 0 if it failed to start
	why     string        // why it was terminated, from a Notice; may be empty
}

// cause is the reason why an instance exited or was released.
type cause uint8

const (
	byItself   cause = iota
	byProbe          // a probe failed
	byOperator       // an operator requested a restart
	byOthers         // somebody else stopped or restarted it
	byRemoval        // the unit was removed, its driver changed, or an operator stopped the target
	byShutdown       // the engine stops
)

// isFinal reports whether no further instance of the unit follows.
func (c cause) isFinal() bool { return c >= byRemoval }

// hasCompleted reports whether the instance exited on its own, with status 0.
func (t termination) hasCompleted() bool {
	return t.reason() == probe.ReasonExited && t.exit.Err == nil && t.exit.Code == 0
}

func (t termination) reason() probe.Reason {
	switch {
	case t.cause == byOperator, t.cause == byOthers:
		return probe.ReasonOperatorRestart
	case t.cause == byShutdown:
		return probe.ReasonShutdown
	case t.cause != byItself:
		return probe.ReasonEnded
	case !t.started && t.exit.Err != nil:
		return probe.ReasonNoStart
	}
	return probe.ReasonExited
}

// status returns the error or the exit status, for operators.
func (t termination) status() string {
	if t.why != "" {
		return t.why + ", " + t.exitStatus()
	}
	return t.exitStatus()
}

func (t termination) exitStatus() string {
	if t.exit.Err != nil {
		return t.exit.Err.Error()
	}
	if t.exit.Signal != "" {
		return fmt.Sprintf("killed by %s (exit status %d)", t.exit.Signal, t.exit.Code)
	}
	return fmt.Sprintf("exit status %d", t.exit.Code)
}

// detail returns the status, what happens next, and the end of the output.
func (t termination) detail(next string) string {
	if t.exit.Output == "" {
		return t.status() + next
	}
	return t.status() + next + ": " + command.LastLines(t.exit.Output, maxDetailOutput)
}

// maxDetailOutput is the maximum number of bytes of output in a detail. The history keeps at most the last 400 bytes of
// a detail (engine.Transition); with this limit these include why the instance ended.
const maxDetailOutput = 300
