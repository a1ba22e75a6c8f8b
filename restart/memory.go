package restart

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Memory is the state that a Controller keeps about one target, from which the Controller of the next engine resumes:
// see Restore. It can be encoded as JSON.
type Memory struct {
	Revision string `json:"revision,omitempty"` // see Unit.RevisionID

	Instance string            `json:"instance,omitempty"` // the ID of the latest instance; empty before the first
	Since    time.Time         `json:"since,omitzero"`     // when it started
	Address  string            `json:"address,omitempty"`  // Begun.Address
	Ports    map[string]uint16 `json:"ports,omitempty"`    // Begun.Ports
	Started  int32             `json:"started,omitempty"`  // number of instances started

	Exits     int       `json:"exits,omitempty"`    // number of exits in a row, for the back-off
	NotBefore time.Time `json:"notBefore,omitzero"` // the end of the back-off
	Exited    bool      `json:"exited,omitempty"`   // the latest instance has exited, and no other was started since
	Code      int       `json:"code,omitempty"`     // its exit status
	// Requested: it was asked to terminate because a probe failed, and the request stands. Until it has exited,
	// NotBefore is then the end of its grace period.
	Requested bool      `json:"requested,omitempty"`
	Budgeted  bool      `json:"budgeted,omitempty"` // its restart because of a failing probe was charged to the budget
	Charged   time.Time `json:"charged,omitzero"`   // when a restart of the target was last charged to the budget

	// Unproven: a reload has changed a probe of the target that has not succeeded since, and restarts wait for that
	// reload, or may have to: see Controller.Reloading.
	Unproven bool `json:"unproven,omitempty"`

	LastExit   string       `json:"lastExit,omitempty"`   // how the previous instance exited, for people
	LastReason probe.Reason `json:"lastReason,omitempty"` // the same as a code
}

// status returns the exit of the latest instance that a driver has run to completion.
func (m Memory) status(external bool) probe.Exit {
	if external || m.LastExit == "" || m.Code < 0 {
		return probe.Exit{}
	}
	return probe.Exit{Known: true, Status: m.Code}
}

// hasFailed reports whether the latest instance has exited, or has started recently after another one exited.
func (m Memory) hasFailed(now time.Time) bool {
	return m.Exited || m.Exits > 0 && now.Sub(m.Since) < defaultBackOffReset
}

// Shown returns the instance of a target for display by an engine that does not restart the target but has the memory
// of the controller that does.
func (m Memory) Shown(target string) probe.Instance {
	in := probe.Instance{
		Target: target, ID: m.Instance, Phase: probe.Running, Since: m.Since, Managed: true, Restarts: max(m.Started-1, 0), Detail: m.LastExit,
		Address: m.Address, Ports: m.Ports,
	}
	switch {
	case m.Exited:
		in.Phase, in.Reason = probe.Waiting, m.LastReason
	case m.Requested:
		in.Reason = probe.ReasonEnding
	}
	return in
}

// Shifted returns m with its times moved by d, after the wall clock was set.
func (m Memory) Shifted(d time.Duration) Memory {
	for _, t := range []*time.Time{&m.Since, &m.NotBefore, &m.Charged} {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
	return m
}

// Resumer is a Driver that can resume an instance that an earlier engine has reported, because the instance runs
// outside the engine or has outlived it.
type Resumer interface {
	Driver

	// Resume makes the next Run resume the instance with this ID instead of starting one, and reports whether it can,
	// or perhaps can. Run then calls began with this ID, or with the ID of a new instance if this one has ended. Resume
	// is called before the first Run, and before a Run that retries the restart of an External instance. It must not
	// block.
	Resume(id string) bool
}

// Restore gives the units the memories of an earlier Controller, by target: restart counts, back-off, exits after which
// the policy starts no further instance, and the spent budget. It ignores the memory of a unit with another Revision.
// Call it after the first Apply, and before Run.
//
// It immediately reports the instances that keep running to the engine, so that their probes never find them absent:
// those of units without a driver, and those that a Resumer takes over. It returns their IDs by target. For any other
// unit the next instance is a new one.
func (c *Controller) Restore(memories map[string]Memory) map[string]string {
	now, instances := time.Now(), []probe.Instance(nil)
	c.unitsMu.Lock()
	for target, m := range memories {
		if in := c.restoreTarget(target, m, now); in.ID != "" {
			instances = append(instances, in)
		}
	}
	c.unitsMu.Unlock()
	goOn := map[string]string{}
	for _, in := range instances {
		goOn[in.Target] = in.ID
		c.config.Engine.Report(in)
	}
	return goOn
}

// TakeOver adds or replaces the given units, removes those in remove, and leaves all other units as they are. It
// ignores a name in remove that has no unit. The memories come from another controller, which has supervised these
// targets until now; they are used as in Restore. If this controller supervises such a target already, the memory
// replaces its own.
func (c *Controller) TakeOver(units map[string]Unit, remove []string, memories map[string]Memory) error {
	if err := CheckUnits(units); err != nil {
		return err
	}
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	if err := c.checkOrder(units, remove); err != nil {
		return err
	}
	c.change(units, remove)
	now := time.Now()
	for target, m := range memories {
		if in := c.restoreTarget(target, m, now); in.ID != "" {
			c.config.Engine.Report(in) // before a supervisor is started, which needs the lock
		}
	}
	c.changed.Set()
	return nil
}

// restored is the memory of a target until its supervisor takes it.
type restored struct {
	Memory
	goesOn probe.Instance // the instance that was reported, if the driver resumes it; otherwise zero
}

// restoreTarget stores the memory of a target if it matches the target's unit, and returns the instance that keeps
// running, if any. It needs unitsMu.
func (c *Controller) restoreTarget(target string, m Memory, now time.Time) (in probe.Instance) {
	u, driven := c.units[target]
	m.Since, m.Started, m.Exits = earlier(m.Since, now), max(m.Started, 0), max(m.Exits, 0)
	switch {
	case c.static.has(target) && m.Instance == probe.StaticID:
		c.static.since[target] = m.Since
		return probe.Instance{Target: target, ID: m.Instance, Phase: probe.Running, Since: m.Since}
	case driven && m.Revision != "" && m.Revision == u.RevisionID():
		m.NotBefore = earlier(m.NotBefore, now.Add(u.BackOff.Max))
		if m.Charged = earlier(m.Charged, now); now.Before(m.Charged.Add(c.config.Budget.Per)) {
			c.spent = c.spent.restore(target, m.Charged)
		}
		switch {
		case c.supervisors[target] == nil:
			in = u.resume(target, m)
		case u.external(): // its driver may be running, so the supervisor calls Resume later
			in = u.goingOn(target, m)
		}
		c.restored[target] = restored{m, in}
	}
	return in
}

// resume asks the unit's driver to resume the remembered instance, and returns the instance if the driver does.
func (u Unit) resume(target string, m Memory) (in probe.Instance) {
	if in = u.goingOn(target, m); in.ID != "" && !u.Driver.(Resumer).Resume(in.ID) {
		return probe.Instance{}
	}
	return in
}

// goingOn returns the remembered instance if it has not exited and the driver may resume it.
func (u Unit) goingOn(target string, m Memory) (in probe.Instance) {
	if _, ok := u.Driver.(Resumer); !ok || m.Instance == "" || m.Instance == noID || m.Exited {
		return in
	}
	return probe.Instance{
		Target: target, ID: m.Instance, Phase: probe.Running, Since: m.Since,
		Managed: u.restartsOnFailure(), Restarts: max(m.Started-1, 0), Detail: m.LastExit, LastExit: m.status(u.external()),
		Address: m.Address, Ports: m.Ports,
	}
}

// takeRestored returns the restored memory of a target, if its supervisor has not taken it yet, and removes it. It
// needs unitsMu.
func (c *Controller) takeRestored(target string) (restored, bool) {
	r, ok := c.restored[target]
	delete(c.restored, target)
	return r, ok
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// ago returns t with a monotonic reading, or now if t is later. Drivers report wall-clock times; initial_delay must not change when
// the wall clock is set.
func ago(t, now time.Time) time.Time { return now.Add(-max(0, now.Round(0).Sub(t))) }

// RevisionID returns a short hash that identifies the unit's Revision, as in Memory.Revision, or "" without one.
func (u Unit) RevisionID() string {
	if u.Revision == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(u.Revision))
	return hex.EncodeToString(sum[:8])
}

// Memory returns the memory of a target with a driver, and whether there is one. After Run has returned, it is the
// memory at the time when Run was stopped.
func (c *Controller) Memory(target string) (Memory, bool) {
	c.unitsMu.Lock()
	m, exists := c.memory(target)
	c.unitsMu.Unlock()
	if exists {
		m.Unproven = c.brake.mayWithhold(target, time.Now())
	}
	return m, exists
}

// memory is Memory without Unproven. It needs unitsMu.
func (c *Controller) memory(target string) (Memory, bool) {
	if m, ok := c.restored[target]; ok {
		return m.Memory, true
	}
	if s := c.supervisors[target]; s != nil {
		return s.memory()
	}
	return Memory{}, false
}

// Remembered returns the targets that may have a Memory, in no particular order.
func (c *Controller) Remembered() []string {
	c.unitsMu.Lock()
	defer c.unitsMu.Unlock()
	targets := make([]string, 0, len(c.supervisors)+len(c.restored))
	for target := range c.supervisors {
		targets = append(targets, target)
	}
	for target := range c.restored {
		if c.supervisors[target] == nil {
			targets = append(targets, target)
		}
	}
	return targets
}

// memory returns the latest memory. Goroutines other than the supervisor's need unitsMu.
func (s *supervisor) memory() (Memory, bool) {
	if m := s.remembered; m != nil {
		return *m, true
	}
	return Memory{}, false
}

// remember updates the memory of the target.
func (s *supervisor) remember(change func(*Memory)) {
	m, _ := s.memory()
	m.Revision, m.Started, m.Exits = s.unit.RevisionID(), s.started, s.exits
	m.LastExit, m.LastReason = s.lastExit, s.lastReason
	change(&m)
	s.control.unitsMu.Lock()
	s.remembered = &m
	s.control.unitsMu.Unlock()
	s.control.config.Changed(s.target)
}

// withdrawRequest records that the instance keeps running although it was asked to terminate: other engines must not
// show it as draining.
func (s *supervisor) withdrawRequest() {
	if m, _ := s.memory(); m.Requested {
		s.remember(func(m *Memory) { m.Requested = false })
	}
}

// resume applies the restored memory, then waits for the end of the back-off, or for a policy that permits another
// instance. It returns the end of the back-off.
func (s *supervisor) resume() (notBefore time.Time) {
	r := s.restored
	s.restored = restored{}
	if r.Revision == "" || r.Revision != s.unit.RevisionID() {
		return time.Time{}
	}
	s.started, s.exits, s.lastExit, s.lastReason = r.Started, r.Exits, r.LastExit, r.LastReason
	s.since, s.lastStatus = r.Since, r.status(s.unit.external())
	if r.goesOn.ID != "" {
		s.resumes, s.reported = r.Instance, r.goesOn
	}
	end := termination{exit: Exit{Code: r.Code}, started: true}
	if r.Requested {
		end.cause = byProbe
	}
	s.remember(func(m *Memory) { *m = r.Memory })
	switch {
	case !r.Exited && s.resumes != "":
	case !r.Exited:
		if time.Since(r.Since) > s.unit.BackOff.Reset {
			s.exits = 0
		}
		if s.unit.endsWithEngine() && !r.Budgeted && s.started > 0 {
			s.started-- // the next instance replaces it: a restart of the engine is not a restart of the target
		}
		if !s.unit.external() {
			return time.Time{}
		}
	case !s.unit.restarts(r.Code, r.Requested):
		s.reportRestored(r, probe.Gone)
		if !s.unit.external() {
			s.waitForPolicy(end)
		}
	case !s.unit.external() && time.Until(r.NotBefore) > 0:
		s.reportRestored(r, probe.Ended)
		s.waitUntil(r.NotBefore)
	}
	return r.NotBefore
}

// reportRestored reports an instance that had exited before the engine started.
func (s *supervisor) reportRestored(r restored, phase probe.Phase) {
	s.reported = probe.Instance{ID: r.Instance, Restarts: max(r.Started-1, 0)}
	in := s.endedInstance(phase)
	in.Reason, in.Detail = r.LastReason, r.LastExit
	if phase == probe.Gone && r.Code == 0 && in.Reason == probe.ReasonExited {
		in.Reason = probe.ReasonCompleted
	}
	if phase == probe.Ended && in.Reason != probe.ReasonNoStart {
		in.Reason = probe.ReasonBackOff
	}
	s.report(in)
	s.log.Info("instance had exited before the engine started", "instance", in.ID, "phase", in.Phase, "back_off", max(time.Until(r.NotBefore), 0).Round(time.Millisecond))
}
