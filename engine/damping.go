package engine

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/timeline"
	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// Damping is the damping state of a target that has flapped: see Change.Dampings.
type Damping struct {
	Penalty float64   // current penalty, in the unit of probe.Damping: probe.FlapPenalty for each flap, less the decay
	Flapped time.Time // time of the last flap
	Since   time.Time // when the damping began; zero if the target is not damped
	Until   time.Time // when the damping ends, unless the target flaps again; zero if the target is not damped
}

// damping is the damping rule of one target, and its penalty. It is immutable.
type damping struct {
	rule    probe.Damping
	penalty verdict.Penalty // its times are clockTimes
	key     uint32          // in penalties; 0 if the penalty is zero
}

// penalties are the times at which penalties must be checked. scheduler.mu guards them.
type penalties struct {
	due     timeline.Timeline
	targets []string // by key; index 0 is unused
	free    []uint32 // unused keys
	damped  int      // number of damped targets
}

// take allocates a key for a target.
func (p *penalties) take(target string) (key uint32) {
	if n := len(p.free); n > 0 {
		key, p.free = p.free[n-1], p.free[:n-1]
		p.targets[key] = target
		return key
	}
	if len(p.targets) == 0 {
		p.targets = []string{""}
	}
	p.targets = append(p.targets, target)
	return uint32(len(p.targets) - 1)
}

// release frees a key.
func (p *penalties) release(key uint32) {
	p.due.Remove(key)
	p.targets[key] = ""
	p.free = append(p.free, key)
}

// checkedDampings returns dampings with their defaults set, or an error that names a target.
func checkedDampings(of map[string]probe.Damping) (map[string]probe.Damping, error) {
	checked := make(map[string]probe.Damping, len(of))
	for target, d := range of {
		d = d.WithDefaults()
		if err := d.Check(); err != nil {
			return nil, fmt.Errorf("damping of target %q: %w", target, err)
		}
		checked[target] = d
	}
	return checked, nil
}

// Penalty returns the penalty of a target, to be restored in the next engine: see Change.Penalties. It is zero if the target has
// none.
func (r Records) Penalty(target string) verdict.Penalty {
	p := r.engine.registry.penaltyOf(target)
	p.At, p.Since = fromClock(r.engine.scheduler.clock, p.At), fromClock(r.engine.scheduler.clock, p.Since)
	return p
}

// clockTime converts a time of the clock to the form in which the engine stores penalties. It has no monotonic clock reading,
// since the monotonic clock stops while the machine is suspended, but penalties continue to decay.
func clockTime(at int64) time.Time { return time.Unix(0, at) }

// toClock converts a time to a clockTime. It returns the zero time unchanged.
func toClock(c *clock.Clock, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return clockTime(c.At(t))
}

// fromClock is the reverse of toClock.
func fromClock(c *clock.Clock, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return c.Time(t.UnixNano())
}

// Penalties returns the targets that have a penalty, in no particular order.
func (r Records) Penalties() (targets []string) {
	r.engine.registry.mu.RLock()
	defer r.engine.registry.mu.RUnlock()
	for target, d := range r.engine.registry.dampings {
		if d.key != 0 {
			targets = append(targets, target)
		}
	}
	return targets
}

// setDampings replaces the dampings. Targets without a penalty get the one in restored, if any.
func (m *summaries) setDampings(of map[string]probe.Damping, restored map[string]verdict.Penalty) {
	now := m.clock.Now()
	for target := range m.registry.dampings { // written only by the scheduler
		if _, stays := of[target]; !stays {
			m.setPenalty(target, nil, verdict.Penalty{})
		}
	}
	for target, rule := range of {
		penalty := m.registry.penaltyOf(target)
		if penalty == (verdict.Penalty{}) {
			m.changePenalty(target, &rule, m.restoredPenalty(rule, restored[target], now))
			continue // already in the history that was restored from the earlier engine
		}
		m.setPenalty(target, &rule, verdict.Decayed(rule, penalty, clockTime(now)))
	}
}

// restorePenalties sets the penalties of targets with a damping rule to those stored by another engine, except where a target's
// own penalty is from a later flap.
func (m *summaries) restorePenalties(restored map[string]verdict.Penalty) {
	for target, penalty := range restored {
		d := m.registry.dampingOf(target)
		if d == nil {
			continue
		}
		if next := m.restoredPenalty(d.rule, penalty, m.clock.Now()); next.At.After(d.penalty.At) {
			m.changePenalty(target, &d.rule, next) // already in the history of the other engine
		}
	}
}

// restoredPenalty converts the penalty of another engine to this one, less the decay since then.
func (m *summaries) restoredPenalty(rule probe.Damping, p verdict.Penalty, now int64) verdict.Penalty {
	p = verdict.Decayed(rule, p, m.clock.Time(now))
	p.At, p.Since = toClock(m.clock, p.At), toClock(m.clock, p.Since)
	return p
}

// countFlap adds a flap to the penalty of a target with a damping rule if the target was ready and is no longer, according to its
// own state and its new summary. It reports whether the damping begins with this flap.
func (m *summaries) countFlap(t *target, slots []*slot, own probe.TargetState, sum *summary) (begins bool) {
	if sum.ready || !sum.decided || !t.gauge.Ready() || t.gauge.State() == probe.StateStopped { // the instance was to stop
		return false
	}
	d, now := m.registry.dampingOf(t.name), m.clock.Now()
	if d == nil || !verdict.IsFlap(t.current().brief(), own) || m.doubtsTarget(t, slots, now) {
		return false
	}
	at := toClock(m.clock, m.clock.Time(now).Truncate(time.Millisecond)) // the precision stored for other engines
	next := verdict.AfterFlap(d.rule, d.penalty, at)
	begins = next.IsDamped() && !d.penalty.IsDamped()
	m.flaps++
	m.dampings += uint64(one(begins))
	m.replacePenalty(t.name, &d.rule, next)
	return begins
}

// doubtsTarget reports whether the engine doubts the verdict of a failing probe of a target.
func (m *summaries) doubtsTarget(t *target, slots []*slot, now int64) bool {
	h := healthAt(m.monitor, now)
	if !h.isUnwell() {
		return false
	}
	return slices.ContainsFunc(slots, func(s *slot) bool { return s.hasFailed(t.current().id) && m.doubts(s, h) })
}

// setPenalty changes the penalty of a target other than by a flap, updates the target's state, and records the begin or end of
// its damping. rule is nil for a target that is not to be damped.
func (m *summaries) setPenalty(target string, rule *probe.Damping, next verdict.Penalty) {
	wasDamped := m.registry.penaltyOf(target).IsDamped()
	if t := m.changePenalty(target, rule, next); t != nil && next.IsDamped() != wasDamped {
		m.recordDamping(t)
	}
}

// changePenalty is setPenalty without a record. It returns the target if the target exists and its penalty has changed.
func (m *summaries) changePenalty(name string, rule *probe.Damping, next verdict.Penalty) *target {
	before := m.registry.penaltyOf(name)
	m.replacePenalty(name, rule, next)
	t, _ := m.registry.target(name)
	if t == nil || next == before {
		return nil
	}
	m.updateState(t)
	m.subscribers.notifyTarget(name, probeChanged)
	return t
}

// replacePenalty replaces the damping rule and the penalty of a target, and schedules the next check of the penalty.
func (m *summaries) replacePenalty(target string, rule *probe.Damping, next verdict.Penalty) {
	var before damping
	if d := m.registry.dampingOf(target); d != nil {
		before = *d
	}
	key := before.key
	switch exists := next != (verdict.Penalty{}); {
	case exists:
		if key == 0 {
			key = m.penalties.take(target)
		}
		m.penalties.due.Set(key, next.NextDecay(*rule).UnixNano())
	case key != 0:
		m.penalties.release(key)
		key = 0
	}
	m.penalties.damped += one(next.IsDamped()) - one(before.penalty.IsDamped())
	if rule == nil {
		m.registry.setDamping(target, nil)
	} else {
		m.registry.setDamping(target, &damping{*rule, next, key})
	}
	if next != before.penalty {
		m.out.record(target, RecordPenalty)
	}
}

// decayPenalties checks up to loopChunk due penalties: it ends the damping, or removes a penalty that has decayed.
func (m *summaries) decayPenalties(now int64) {
	for range loopChunk {
		key, due, ok := m.penalties.due.First()
		if !ok || due > now {
			return
		}
		target := m.penalties.targets[key]
		d := m.registry.dampingOf(target)
		m.setPenalty(target, &d.rule, verdict.Decayed(d.rule, d.penalty, clockTime(now)))
	}
}

// recordDamping records in the history and the log that a target is now damped or no longer damped.
func (m *summaries) recordDamping(t *target) {
	d, in, now := m.registry.dampingOf(t.name), t.current(), m.clock.Now()
	tr := Transition{Undamped: true, Reason: probe.ReasonDamped, Instance: in.id, Phase: in.phase, Restarts: in.restarts}
	line := func(to *slog.Logger) { to.Info("target no longer damped", "target", t.name) }
	if d != nil && d.penalty.IsDamped() {
		tr.Damped, tr.Undamped = true, false
		tr.Detail = fmt.Sprintf("penalty %.0f, suppress %d", d.penalty.Value, d.rule.Suppress)
		until := fromClock(m.clock, d.penalty.NextDecay(d.rule))
		line = func(to *slog.Logger) {
			to.Warn("target damped: it has flapped too often", "target", t.name, "penalty", math.Round(d.penalty.Value), "until", until)
		}
	}
	m.recordTransition(t, tr, now)
	m.log.limited(line, now)
}

// setDamping sets the damping rule and penalty of a target, or removes them if d is nil.
func (r *registry) setDamping(target string, d *damping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.dampings, target); d != nil {
		r.dampings[target] = d
	}
}

// dampingOf returns the damping rule and penalty of a target, or nil. The caller must not modify it.
func (r *registry) dampingOf(target string) *damping {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.dampings[target]
}

// penaltyOf returns the penalty of a target, or the zero Penalty.
func (r *registry) penaltyOf(target string) (p verdict.Penalty) {
	if d := r.dampingOf(target); d != nil {
		p = d.penalty
	}
	return p
}

// public returns the damping for a status, or nil without a penalty. d may be nil.
func (d *damping) public(c *clock.Clock) *Damping {
	if d == nil || d.key == 0 {
		return nil
	}
	p := d.penalty
	public := &Damping{Penalty: p.ValueAt(d.rule, clockTime(c.Now())), Flapped: fromClock(c, p.At), Since: fromClock(c, p.Since)}
	if p.IsDamped() {
		public.Until = fromClock(c, p.NextDecay(d.rule))
	}
	return public
}
