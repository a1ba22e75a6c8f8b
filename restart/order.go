package restart

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/cycle"
	"github.com/sonde-probe/sonde/probe"
)

// startOrder records the targets whose supervisors are running and, for each, which targets had to start before it. A
// Controller guards it with unitsMu.
type startOrder struct {
	after      map[string][]string        // by target: the targets that it was started after
	dependents map[string]map[string]bool // by target: the targets that were started after it
}

func newStartOrder() startOrder {
	return startOrder{after: map[string][]string{}, dependents: map[string]map[string]bool{}}
}

// checkOrder returns an error if the given changes and removals of units would create a cycle: its targets would never
// be started. It needs unitsMu.
func (c *Controller) checkOrder(units map[string]Unit, remove []string) error {
	if !areOrdered(units) { // most controllers have no order, and many units
		return nil
	}
	after := map[string][]string{}
	for target, u := range c.units {
		after[target] = u.StartAfter
	}
	for _, target := range remove {
		delete(after, target)
	}
	for target, u := range units {
		after[target] = u.StartAfter
	}
	var errs []error
	for _, found := range cycle.Find(after) {
		err := probe.FieldErrorf("start_after", "has a cycle: %s; remove one of these", strings.Join(found, " after "))
		errs = append(errs, fmt.Errorf("target %q: %w", found[0], err))
	}
	return errors.Join(errs...)
}

// areOrdered reports whether any unit is started after others.
func areOrdered(units map[string]Unit) bool {
	for _, u := range units {
		if len(u.StartAfter) > 0 {
			return true
		}
	}
	return false
}

// add records that a target was started, after others.
func (o *startOrder) add(target string, after []string) {
	o.remove(target)
	o.after[target] = after
	for _, earlier := range after {
		if o.dependents[earlier] == nil {
			o.dependents[earlier] = map[string]bool{}
		}
		o.dependents[earlier][target] = true
	}
}

// change updates the order of a started target whose unit has changed.
func (o *startOrder) change(target string, after []string) {
	if _, started := o.after[target]; started {
		o.add(target, after)
	}
}

// remove records that a target has ended, and returns the targets that it was started after.
func (o *startOrder) remove(target string) (after []string) {
	after = o.after[target]
	delete(o.after, target)
	for _, earlier := range after {
		delete(o.dependents[earlier], target)
		if len(o.dependents[earlier]) == 0 {
			delete(o.dependents, earlier)
		}
	}
	return after
}

// startAfterInterval is the time between two checks of the targets that a target is started after.
const startAfterInterval = 100 * time.Millisecond

// waitForOthers returns when all targets that this one is started after are up, or when refresh returns false. An
// instance of an earlier engine does not wait for them.
func (s *supervisor) waitForOthers() {
	t := time.NewTicker(startAfterInterval)
	defer t.Stop()
	waited := false
	for s.resumes == "" && !s.unit.external() && s.refresh() && !s.control.takeRequest(s.target) {
		missing := s.missing()
		if len(missing) == 0 {
			if waited {
				s.log.Info("no longer waiting for other targets")
			}
			break
		}
		s.reportWaiting(missing, !waited)
		waited = true
		select {
		case <-t.C:
		case <-s.wake:
		}
	}
	s.control.started(s.target)
}

// started records that a target no longer waits for others.
func (c *Controller) started(target string) {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	if u, driven := c.units[target]; driven && !u.external() {
		c.order.add(target, u.StartAfter)
	}
}

// missing returns the targets that must be up before this one and are not, with their states.
func (s *supervisor) missing() (missing []string) {
	for _, target := range s.unit.StartAfter {
		state, ready := probe.StateAbsent, false
		if gauge, ok := s.control.config.Engine.WatchTarget(target); ok {
			state, ready = gauge.State(), gauge.Ready()
		}
		switch {
		case state == probe.StateCompleted:
		case !ready:
			missing = append(missing, fmt.Sprintf("%s (%v)", target, state))
		case s.control.runsOnce(target):
			missing = append(missing, target+" (not completed)")
		}
	}
	return missing
}

// runsOnce reports whether targets that start after this one wait until it has exited: it is a Oneshot, or it is never
// restarted and has neither a startup nor a readiness probe.
func (c *Controller) runsOnce(target string) bool {
	c.unitsMu.Lock()
	u := c.units[target]
	c.unitsMu.Unlock()
	if u.Oneshot || u.Policy != Never || u.external() {
		return u.Oneshot
	}
	status, _ := c.config.Engine.Target(target)
	return !slices.ContainsFunc(status.Probes, func(p engine.Status) bool { return p.ID.Kind != probe.Liveness })
}

// reportWaiting reports that the first instance waits for other targets.
func (s *supervisor) reportWaiting(missing []string, log bool) {
	text := "waiting for " + strings.Join(missing, ", ")
	if log {
		s.log.Info("waiting for other targets before the start", "start_after", slices.Clone(s.unit.StartAfter), "missing", missing)
	}
	in := s.endedInstance(probe.Ended)
	in.Reason, in.Detail = probe.ReasonStartAfter, text
	if s.reported.Reason == in.Reason {
		in.Since = s.reported.Since
	}
	if in.Reason != s.reported.Reason || in.Detail != s.reported.Detail {
		s.report(in)
	}
	s.reportAgain()
}

// haveExited reports whether all given targets have exited for good. It returns false if there are none.
func haveExited(e *engine.Engine, targets []string) bool {
	for _, target := range targets {
		gauge, known := e.WatchTarget(target)
		if !known || gauge.State() != probe.StateCompleted && gauge.State() != probe.StateExited {
			return false
		}
	}
	return len(targets) > 0
}

// wakeServing wakes the supervisors of the targets that serve this one, after it has exited for good or is started
// again.
func (s *supervisor) wakeServing() {
	c := s.control
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	for target := range c.serves.dependents[s.target] {
		if other := c.supervisors[target]; other != nil {
			other.wake.Set()
		}
	}
}
