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

// Damping is the penalty of a target that has flapped: see Change.Dampings.
type Damping struct {
	Penalty float64   // now, in the unit of probe.Damping: probe.FlapPenalty for each flap, less its decay
	Flapped time.Time // when the target has flapped last
	Since   time.Time // since when it is damped; zero if it is not
	Until   time.Time // when it is no longer damped, unless it flaps again; zero if it is not damped
}

// damping is how one target is damped, and its penalty. It is never changed.
type damping struct {
	rule    probe.Damping
	penalty verdict.Penalty // its times are of clockTime
	key     uint32          // of penalties; 0 while the penalty is zero
}

// penalties are when the penalties of targets have to be looked at. scheduler.mu guards them.
type penalties struct {
	due     timeline.Timeline
	targets []string // by key; the first one is not used
	free    []uint32 // keys that no target has
	damped  int      // how many targets are damped
}

// take returns a key for a target.
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

// release takes a key back.
func (p *penalties) release(key uint32) {
	p.due.Remove(key)
	p.targets[key] = ""
	p.free = append(p.free, key)
}

// checkedDampings returns dampings with their defaults, or an error that names a target.
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

// Penalty returns the penalty of a target, to be remembered for the next engine: see Change.Penalties.
// It is zero if the target has none.
func (r Records) Penalty(target string) verdict.Penalty {
	p := r.engine.registry.penaltyOf(target)
	p.At, p.Since = fromClock(r.engine.scheduler.clock, p.At), fromClock(r.engine.scheduler.clock, p.Since)
	return p
}

// clockTime returns a time of the clock as penalties in the engine have it. It has no reading of the monotonic clock,
// which stands still while the machine is suspended: a penalty decays meanwhile.
func clockTime(at int64) time.Time { return time.Unix(0, at) }

// toClock returns the clockTime of a time, and the zero time for that.
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

// Penalties returns the targets that have a penalty.
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

// setDampings replaces the dampings. Targets without a penalty go on with those of restored.
func (m *summaries) setDampings(of map[string]probe.Damping, restored map[string]verdict.Penalty) {
	now := m.clock.Now()
	for target := range m.registry.dampings { // which only the scheduler writes
		if _, stays := of[target]; !stays {
			m.setPenalty(target, nil, verdict.Penalty{})
		}
	}
	for target, rule := range of {
		penalty := m.registry.penaltyOf(target)
		if penalty == (verdict.Penalty{}) {
			m.changePenalty(target, &rule, m.restoredPenalty(rule, restored[target], now))
			continue // the history has it from the earlier engine
		}
		m.setPenalty(target, &rule, verdict.Decayed(rule, penalty, clockTime(now)))
	}
}

// restorePenalties has targets that are to be damped go on with the penalties that another engine has stored, unless
// their own are of later flaps.
func (m *summaries) restorePenalties(restored map[string]verdict.Penalty) {
	for target, penalty := range restored {
		d := m.registry.dampingOf(target)
		if d == nil {
			continue
		}
		if next := m.restoredPenalty(d.rule, penalty, m.clock.Now()); next.At.After(d.penalty.At) {
			m.changePenalty(target, &d.rule, next) // the history has it from the other engine
		}
	}
}

// restoredPenalty returns the penalty of another engine as this one has it: what has decayed since is left out.
func (m *summaries) restoredPenalty(rule probe.Damping, p verdict.Penalty, now int64) verdict.Penalty {
	p = verdict.Decayed(rule, p, m.clock.Time(now))
	p.At, p.Since = toClock(m.clock, p.At), toClock(m.clock, p.Since)
	return p
}

// countFlap adds a flap to the penalty of a target that is to be damped, if it was ready, and is not by
// its own state and its new summary. It reports whether the target is damped now, and was not before.
func (m *summaries) countFlap(t *target, slots []*slot, own probe.TargetState, sum *summary) (begins bool) {
	if sum.ready || !sum.decided || !t.gauge.Ready() || t.gauge.State() == probe.StateStopped { // whose instance was to end
		return false
	}
	d, now := m.registry.dampingOf(t.name), m.clock.Now()
	if d == nil || !verdict.IsFlap(t.current().brief(), own) || m.doubtsTarget(t, slots, now) {
		return false
	}
	at := toClock(m.clock, m.clock.Time(now).Truncate(time.Millisecond)) // as it is stored for other engines, which show the same
	next := verdict.AfterFlap(d.rule, d.penalty, at)
	begins = next.IsDamped() && !d.penalty.IsDamped()
	m.flaps++
	m.dampings += uint64(one(begins))
	m.replacePenalty(t.name, &d.rule, next)
	return begins
}

// doubtsTarget reports whether a probe of a target fails whose verdict the engine doubts.
func (m *summaries) doubtsTarget(t *target, slots []*slot, now int64) bool {
	h := healthAt(m.monitor, now)
	if !h.isUnwell() {
		return false
	}
	return slices.ContainsFunc(slots, func(s *slot) bool { return s.hasFailed(t.current().id) && m.doubts(s, h) })
}

// setPenalty gives a target another penalty, apart from a flap, brings its state up to date, and records
// whether its damping begins or ends. Rule is nil for a target that is not to be damped.
func (m *summaries) setPenalty(target string, rule *probe.Damping, next verdict.Penalty) {
	wasDamped := m.registry.penaltyOf(target).IsDamped()
	if t := m.changePenalty(target, rule, next); t != nil && next.IsDamped() != wasDamped {
		m.recordDamping(t)
	}
}

// changePenalty is setPenalty without a record. It returns the target if there is one, and its penalty was
// another one.
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

// replacePenalty replaces how a target is damped, and its penalty, and notes when that has to be looked at.
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

// decayPenalties looks at some of the penalties whose time has come: it ends their damping, or forgets
// them.
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

// recordDamping adds to the history and the log that a target is damped now, or that it is no longer.
func (m *summaries) recordDamping(t *target) {
	d, in, now := m.registry.dampingOf(t.name), t.current(), m.clock.Now()
	tr := Transition{Undamped: true, Reason: probe.ReasonDamped, Instance: in.id, Phase: in.phase, Restarts: in.restarts}
	line := func(to *slog.Logger) { to.Info("target is no longer damped", "target", t.name) }
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

// setDamping sets how a target is damped, with its penalty; nil for one that is not to be damped.
func (r *registry) setDamping(target string, d *damping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.dampings, target); d != nil {
		r.dampings[target] = d
	}
}

// dampingOf returns how a target is damped, with its penalty, or nil. Do not change it.
func (r *registry) dampingOf(target string) *damping {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.dampings[target]
}

// penaltyOf returns the penalty of a target, or zero.
func (r *registry) penaltyOf(target string) (p verdict.Penalty) {
	if d := r.dampingOf(target); d != nil {
		p = d.penalty
	}
	return p
}

// public returns the damping for a status; nil without a penalty. D may be nil.
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
