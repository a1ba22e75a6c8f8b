package restart

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Stopped records when, and by whom, a target was stopped with Controller.Stop.
type Stopped struct {
	At time.Time `json:"at"`
	By string    `json:"by"`
}

// The errors of Controller.Stop, Start and Restart.
var (
	ErrNoTarget  = errors.New("there is no such target")
	errNotDriven = errors.New("the engine neither starts nor restarts the target: it has no process or restart block")
	errNotRun    = errors.New("the engine does not start the target; it only restarts it")
)

// Stop terminates the instance of a target within its grace period, and starts no other one until Start or Restart is
// called. by names the operator, for the log and for display. Stop returns at once, with false if the target was
// stopped already. It returns ErrNoTarget if there is no such target, and another error if the target has no driver or
// an External one.
func (c *Controller) Stop(target, by string) (changed bool, err error) {
	changed, err = c.operate(target, func(u Unit) (bool, error) {
		if u.external() {
			return false, errNotRun
		}
		if _, already := c.stopped[target]; already {
			return false, nil
		}
		delete(c.requested, target)
		c.stopped[target] = Stopped{At: time.Now(), By: by}
		return true, nil
	})
	if changed {
		c.config.Logger.Info("stop requested", "target", target, "by", by)
	}
	return changed, err
}

// Start reverts Stop. It returns false if the target was not stopped. Its errors are those of Stop.
func (c *Controller) Start(target, by string) (changed bool, err error) {
	var was Stopped
	changed, err = c.operate(target, func(u Unit) (stopped bool, err error) {
		if u.external() {
			return false, errNotRun
		}
		was, stopped = c.stopped[target]
		delete(c.stopped, target)
		return stopped, nil
	})
	if changed {
		c.config.Logger.Info("start requested", "target", target, "by", by, "stopped_by", was.By, "stopped_at", was.At)
	}
	return changed, err
}

// Restart terminates the instance of a target within its grace period, and starts the next one at once, regardless of
// the unit's policy, the back-off and the budget. It also starts a target that is stopped or waiting, or whose last
// instance has exited. It returns ErrNoTarget if there is no such target, and another error if the target has no
// driver.
func (c *Controller) Restart(target, by string) (changed bool, err error) {
	changed, err = c.operate(target, func(Unit) (bool, error) {
		if _, stopped := c.stopped[target]; stopped {
			delete(c.stopped, target)
		} else {
			c.requested[target] = true
		}
		return true, nil
	})
	if changed {
		c.config.Logger.Info("restart requested", "target", target, "by", by)
	}
	return changed, err
}

// operate calls change for the unit of a target with a driver, and wakes the target's supervisor.
func (c *Controller) operate(target string, change func(Unit) (bool, error)) (changed bool, err error) {
	c.unitsMu.Lock()
	u, driven := c.units[target]
	switch {
	case driven:
		changed, err = change(u)
	case c.static.has(target):
		err = errNotDriven
	default:
		err = ErrNoTarget
	}
	if s := c.supervisors[target]; s != nil {
		s.wake.Set()
	}
	c.unitsMu.Unlock()
	if changed {
		c.config.StoppedChanged()
	}
	return changed, err
}

// Stopped returns the targets that operators have stopped.
func (c *Controller) Stopped() map[string]Stopped {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	return maps.Clone(c.stopped)
}

// RestoreStopped stops the targets that were stopped when an earlier engine ended. Call it after the first Apply, and
// before Run. It ignores targets that have no unit or cannot be stopped.
func (c *Controller) RestoreStopped(stopped map[string]Stopped) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	for target, s := range stopped {
		if u, driven := c.units[target]; driven && !u.external() {
			c.stopped[target] = s
		}
	}
}

// takeRequest reports whether a restart of a target was requested, and clears the request.
func (c *Controller) takeRequest(target string) bool {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	requested := c.requested[target]
	delete(c.requested, target)
	return requested
}

// reportedAs returns in with the reason and a detail that names the operator who stopped the target.
func (s Stopped) reportedAs(in probe.Instance) probe.Instance {
	in.Reason, in.Detail = probe.ReasonOperatorStop, fmt.Sprintf("stopped by %s at %s", s.By, s.At.UTC().Format(time.RFC3339))
	return in
}

// waitWhileStopped reports that the target is stopped, and returns when it is started or its unit is removed. It
// returns at once if an earlier engine's instance is still to be taken over, which is terminated first.
func (s *supervisor) waitWhileStopped() {
	for s.resumes == "" {
		w := s.control.wish(s.target)
		if !w.wanted || !w.isStopped {
			return
		}
		s.unit = w.unit
		in := s.endedInstance(probe.Gone)
		if w.isDone {
			in.Reason, in.Detail = probe.ReasonCompleted, "all targets that it serves have exited"
			if s.control.takeRequest(s.target) {
				s.log.Info("restart request ignored: all targets that it serves have exited")
			}
		} else {
			in = w.stopped.reportedAs(in)
		}
		if in.Reason != s.reported.Reason || in.Detail != s.reported.Detail {
			s.report(in)
		}
		s.reportAgain()
		<-s.wake
	}
}

// replace asks the driver to terminate the instance because an operator requested another one.
func (i *instance) replace(now time.Time) {
	s := i.supervisor
	grace := s.unit.TerminationGracePeriod
	i.inbox.read() // drop an unread failure of an earlier request
	i.notBefore = now.Add(grace + forceTimeout)
	i.recheck.Reset(i.notBefore.Sub(now))
	i.acquired = true
	withheldBy := s.control.config.Disruptions.Acquire(s.target, i.id, true)
	i.show(true, probe.ReasonOperatorRestart, "")
	s.log.Info("terminating instance, its restart was requested", "instance", i.id, "grace_period", grace)
	if withheldBy != "" {
		s.log.Warn("group may have fewer than min_ready ready members during a restart that was requested", "instance", i.id, "group", withheldBy)
	}
	i.sendGrace(grace)
}

// errNotTerminated is the error of a requested restart that timed out without an error of the driver.
var errNotTerminated = errors.New("the instance was not terminated in time")

// giveUp reports that the driver could not terminate the instance for an operator. The reported detail contains the
// time, so that an operator who waits for the next instance can detect by its change that the restart failed.
func (i *instance) giveUp(now time.Time, reason error) {
	s := i.supervisor
	i.free()
	text := s.control.config.Redact(reason.Error())
	s.log.Warn("instance not restarted as requested", "instance", i.id, "error", text)
	in := s.reported
	in.Managed, in.Reason = s.unit.restartsOnFailure(), i.runningReason(now)
	in.Detail = fmt.Sprintf("not restarted as requested at %s: %s", now.UTC().Format(millisecondsRFC3339), text)
	i.explained = false // it stays
	s.report(in)
	i.recheck.Reset(0) // a probe may be failing whose verdict has not changed since
}

// millisecondsRFC3339 is time.RFC3339 with milliseconds, which distinguishes restarts within the same second.
const millisecondsRFC3339 = "2006-01-02T15:04:05.000Z07:00"

// restarted records the exit of an instance whose restart was requested, and resets the back-off.
func (s *supervisor) restarted(end termination) {
	s.exits, s.alerted = 0, false
	s.remember(func(m *Memory) {
		m.NotBefore, m.Exited, m.Code, m.Requested, m.Budgeted = time.Time{}, true, end.exit.Code, true, false
		m.LastExit, m.LastReason = end.detail(""), end.reason()
	})
	s.reportEnd(end, probe.Ended, time.Time{})
}
