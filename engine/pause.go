package engine

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Pause means that no action is taken on a target for a while, regardless of its probes: an operator works on it, or it is under
// maintenance.
type Pause struct {
	Reason probe.Reason // probe.ReasonPaused or probe.ReasonMaintenance
	Detail string       // who paused the target, and why, for people
	Since  time.Time
	Until  time.Time // scheduled end, for people: the engine does not end a Pause; zero if unknown
}

// Pause pauses a target, or replaces its existing Pause. While a target is paused, its probes, verdicts and history continue. But
// its state is probe.StatePaused, which is not a state of trouble, gateways drain it, and Suppressed reports that no action is to
// be taken. The target need not exist yet, and remains paused even after it was removed, until Unpause. Pause is safe for
// concurrent use.
func (a Admin) Pause(target string, p Pause) {
	p.Detail = probe.CleanText(a.engine.conf.Redact(p.Detail), maxInstanceText)
	a.setPause(target, &p)
}

// Unpause ends the Pause of a target, if it has one. It is safe for concurrent use.
func (a Admin) Unpause(target string) { a.setPause(target, nil) }

// Suppressed returns why no action is to be taken on a target now, regardless of its probes: it must not be restarted because of
// a failing probe, and nobody is notified of its transitions. The reason is probe.ReasonPaused, probe.ReasonMaintenance,
// probe.ReasonDependency if the target depends on a target in trouble, or probe.ReasonDamped if its state is probe.StateDamped.
// It is "" if actions are not suppressed. Call Suppressed right before each action on a verdict, and retry a suppressed action a
// little later. It is safe for concurrent use.
func (a Admin) Suppressed(target string) probe.Reason {
	if p := a.engine.registry.pauseOf(target); p != nil {
		return p.Reason
	}
	if a.troubledDependency(target) != "" {
		return probe.ReasonDependency
	}
	if t, _ := a.engine.registry.target(target); t != nil && t.currentState() == probe.StateDamped {
		return probe.ReasonDamped
	}
	return ""
}

// setPause sets the Pause of a target; nil removes it.
func (a Admin) setPause(target string, p *Pause) {
	a.engine.scheduler.mu.Lock()
	defer a.engine.scheduler.unlock()
	a.engine.scheduler.summaries.setPause(target, p)
}

// setPause sets the Pause of a target, and publishes the change; nil removes it.
func (m *summaries) setPause(name string, p *Pause) {
	before := m.registry.setPause(name, p)
	t, _ := m.registry.target(name)
	if t == nil || before == nil && p == nil || before != nil && p != nil && *before == *p {
		return
	}
	m.updateState(t)
	m.subscribers.notifyTarget(name, probeChanged)
	in := t.current()
	tr := Transition{Paused: p != nil, Unpaused: p == nil, Instance: in.id, Phase: in.phase, Restarts: in.restarts}
	if p == nil {
		p = before
	}
	tr.Reason, tr.Detail = p.Reason, p.Detail
	m.recordTransition(t, tr, m.clock.Now())
}

// setPause sets the Pause of a target, and returns the previous one. Both may be nil.
func (r *registry) setPause(target string, p *Pause) (before *Pause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.pauses[target]
	if delete(r.pauses, target); p != nil {
		r.pauses[target] = p
	}
	return before
}

// pauseOf returns the Pause of a target, or nil. The caller must not modify it.
func (r *registry) pauseOf(target string) *Pause {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.pauses[target]
}
