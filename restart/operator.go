package restart

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Stopped says when an operator has stopped a target by Controller.Stop, and who that was.
type Stopped struct {
	At time.Time `json:"at"`
	By string    `json:"by"`
}

// The errors of Controller.Stop, Start and Restart.
var (
	ErrNoTarget  = errors.New("there is no such target")
	errNotDriven = errors.New("the engine neither starts nor restarts the target: it has no process or restart block")
	errNotRun    = errors.New("the engine does not start the target, it only restarts it by a command")
)

// Stop terminates the instance of a target within its grace period, and starts no other one until
// Start or Restart is called. By names the operator, for the log and for people. It returns at once,
// with false if the target was stopped before. It is an error, ErrNoTarget, if there is no such
// target, or if it has no driver or an External one.
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

// Start ends what Stop has begun. It returns false if the target was not stopped. Its errors are
// those of Stop.
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

// Restart terminates the instance of a target within its grace period, and starts the next one at
// once, whatever the unit's policy, back-off and the budget are. It starts a target that was stopped,
// that waits, or whose last instance has exited. It is an error, ErrNoTarget, if there is no such
// target, or if it has no driver.
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

// operate makes a change to a target that has a driver, and wakes its supervisor.
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

// RestoreStopped stops the targets that were stopped when an earlier engine ended. Call it after the
// first Apply, and before Run. Targets without a unit that can be stopped are ignored.
func (c *Controller) RestoreStopped(stopped map[string]Stopped) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	for target, s := range stopped {
		if u, driven := c.units[target]; driven && !u.external() {
			c.stopped[target] = s
		}
	}
}

// takeRequest returns whether a restart of a target was requested, once.
func (c *Controller) takeRequest(target string) bool {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	requested := c.requested[target]
	delete(c.requested, target)
	return requested
}

// reportedAs returns a report that says who has stopped the target.
func (s Stopped) reportedAs(in probe.Instance) probe.Instance {
	in.Reason, in.Detail = probe.ReasonOperatorStop, fmt.Sprintf("stopped by %s at %s", s.By, s.At.UTC().Format(time.RFC3339))
	return in
}

// waitWhileStopped reports that an operator has stopped the target, and returns when it is started,
// or its unit is removed. An instance of an earlier engine is terminated before.
func (s *supervisor) waitWhileStopped() {
	for s.resumes == "" {
		w := s.control.wish(s.target)
		if !w.wanted || !w.isStopped {
			return
		}
		s.unit = w.unit
		in := s.endedInstance(probe.Gone)
		if w.isDone {
			in.Reason, in.Detail = probe.ReasonCompleted, "all that it serves have exited"
			if s.control.takeRequest(s.target) {
				s.log.Info("restart request ignored, all that it serves have exited")
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

// replace asks the driver to terminate the instance, since an operator wants another one.
func (i *instance) replace(now time.Time) {
	s := i.supervisor
	grace := s.unit.TerminationGracePeriod
	i.inbox.read() // a failure that is not read yet is about an earlier request
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

// errNotTerminated is why a restart was given up of which the driver says nothing.
var errNotTerminated = errors.New("it was not terminated in time")

// giveUp reports that the driver could not terminate the instance for an operator. Its detail says so, and when, from
// then on: an operator who waits for the next instance sees by its change that there is none.
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
	i.recheck.Reset(0) // a probe may fail that has not changed since
}

// millisecondsRFC3339 is a time.RFC3339 that tells restarts of the same second apart.
const millisecondsRFC3339 = "2006-01-02T15:04:05.000Z07:00"

// restarted goes on after an instance that has exited since its restart was requested.
func (s *supervisor) restarted(end termination) {
	s.exits, s.alerted = 0, false
	s.remember(func(m *Memory) {
		m.NotBefore, m.Exited, m.Code, m.Requested, m.Budgeted = time.Time{}, true, end.exit.Code, true, false
		m.LastExit, m.LastReason = end.detail(""), end.reason()
	})
	s.reportEnd(end, probe.Ended, time.Time{})
}
