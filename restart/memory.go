package restart

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Memory is what a Controller remembers about one target, for the Controller of the next
// engine to go on with: see Restore. It can be written as JSON.
type Memory struct {
	Revision string `json:"revision,omitempty"` // identifies the unit's Revision

	Instance string            `json:"instance,omitempty"` // the ID of the latest instance; empty before the first
	Since    time.Time         `json:"since,omitzero"`     // when it started
	Address  string            `json:"address,omitempty"`  // Begun.Address
	Ports    map[string]uint16 `json:"ports,omitempty"`    // Begun.Ports
	Started  int32             `json:"started,omitempty"`  // how many instances have started

	Exits     int       `json:"exits,omitempty"`     // how many instances in a row have exited, for the back-off
	NotBefore time.Time `json:"notBefore,omitzero"`  // the end of the back-off
	Exited    bool      `json:"exited,omitempty"`    // the latest instance has exited, and none was started since
	Code      int       `json:"code,omitempty"`      // its exit status
	Requested bool      `json:"requested,omitempty"` // it was asked to terminate because a probe failed, and that has not failed; NotBefore is the end of its grace period until it has exited
	Budgeted  bool      `json:"budgeted,omitempty"`  // its restart because a probe fails was taken from the budget
	Charged   time.Time `json:"charged,omitzero"`    // when a restart of the target was last charged to the budget

	Unproven bool `json:"unproven,omitempty"` // a reload has changed a probe of the target that has not succeeded since, and restarts wait for that reload, or may: see Controller.Reloading

	LastExit   string       `json:"lastExit,omitempty"`   // how the previous instance exited, for people
	LastReason probe.Reason `json:"lastReason,omitempty"` // the same as a code
}

// status returns how the latest instance has exited that a driver has run to its end.
func (m Memory) status(external bool) probe.Exit {
	if external || m.LastExit == "" || m.Code < 0 {
		return probe.Exit{}
	}
	return probe.Exit{Known: true, Status: m.Code}
}

// hasFailed reports whether the latest instance has exited, or has started lately after one that did.
func (m Memory) hasFailed(now time.Time) bool {
	return m.Exited || m.Exits > 0 && now.Sub(m.Since) < defaultBackOffReset
}

// Shown returns the instance of a target as an engine shows it that knows this memory of the controller that
// restarts the target.
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

// Resumer is a Driver that can go on with an instance which an earlier engine has
// reported, since the instance runs outside the engine, or has outlived it.
type Resumer interface {
	Driver

	// Resume makes the next Run go on with an instance, instead of starting one, and
	// reports whether it can, or may: Run then calls began with this ID, or with that of a
	// new instance if this one has ended. It is called before the first Run, and before that
	// after an ErrShortage of an External driver, and must not block.
	Resume(id string) bool
}

// Restore makes the units go on with what an earlier Controller has remembered about
// them, by target: restart counts, back-off, exits after which the policy starts no other instance,
// and the spent budget. It ignores what it remembered about a unit with another
// Revision. Call it after the first Apply, and before Run.
//
// It reports the instances that go on to the engine at once, so that their probes never
// see them absent: those of units without a driver, and those that a Resumer takes over.
// It returns their IDs by target. For any other unit the next instance is a new one.
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

// TakeOver replaces some units and removes others, as an Apply that has all other units as they are would. A name that
// is not that of a unit is not removed. It goes on with what another controller, which has supervised targets until now,
// has remembered about units, as after Restore. If the controller supervises such a target already, the memory replaces
// its own.
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
	goesOn probe.Instance // as it was reported, if the driver goes on with it; or else zero
}

// restoreTarget keeps the memory of a target if it belongs to its unit, and returns the instance that
// goes on, if there is one. It needs unitsMu.
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
		case u.external(): // its driver may run: the supervisor asks it next
			in = u.goingOn(target, m)
		}
		c.restored[target] = restored{m, in}
	}
	return in
}

// resume asks the unit's driver to go on with the instance that is remembered, and returns it, if the
// driver does.
func (u Unit) resume(target string, m Memory) (in probe.Instance) {
	if in = u.goingOn(target, m); in.ID != "" && !u.Driver.(Resumer).Resume(in.ID) {
		return probe.Instance{}
	}
	return in
}

// goingOn returns the instance that is remembered, if it has not exited and the driver may go on with it.
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

// takeRestored returns the memory that a supervisor of a target has not taken yet. It needs unitsMu.
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

// RevisionID returns a short text that identifies the unit's revision, as in
// Memory.Revision, or nothing without one.
func (u Unit) RevisionID() string {
	if u.Revision == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(u.Revision))
	return hex.EncodeToString(sum[:8])
}

// Memory returns what is remembered about a target with a driver, and whether there is
// anything. After Run has returned it is what was remembered when Run was stopped.
func (c *Controller) Memory(target string) (Memory, bool) {
	c.unitsMu.Lock()
	m, exists := c.memory(target)
	c.unitsMu.Unlock()
	if exists {
		m.Unproven = c.brake.mayWithhold(target, time.Now())
	}
	return m, exists
}

// memory is Memory. It needs unitsMu.
func (c *Controller) memory(target string) (Memory, bool) {
	if m, ok := c.restored[target]; ok {
		return m.Memory, true
	}
	if s := c.supervisors[target]; s != nil {
		return s.memory()
	}
	return Memory{}, false
}

// Remembered returns the targets that may have a Memory, in no order.
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

// memory returns what the supervisor last remembered. Others than its goroutine need unitsMu.
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

// withdrawRequest remembers that the instance goes on, although it was asked to terminate: other engines must not show
// it as one that drains.
func (s *supervisor) withdrawRequest() {
	if m, _ := s.memory(); m.Requested {
		s.remember(func(m *Memory) { m.Requested = false })
	}
}

// resume goes on with what was restored, and waits for the end of the back-off, or for a
// policy that asks for another instance. It returns the end of the back-off.
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
			s.started-- // the next instance takes its place: a restart of the engine is none of the target's
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

// reportRestored reports an instance that had exited before the engine was started.
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
