package engine

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Pause says that nothing is to be done about a target for a while, whatever its probes find out:
// an operator works on it, or it is under maintenance.
type Pause struct {
	Reason probe.Reason // probe.ReasonPaused or probe.ReasonMaintenance
	Detail string       // who has paused it, and why, for people
	Since  time.Time
	Until  time.Time // when it is to end, for people: the engine ends no Pause; zero if that is not known
}

// Pause pauses a target, or replaces the Pause that it has. While a target is paused its probes go
// on, and so do their verdicts and its history. But its state is probe.StatePaused, which is not one
// of trouble, gateways are to drain it, and Suppressed says that nothing is to be done about it.
// The target need not exist yet, and stays paused when it is removed, until Unpause. Several
// goroutines may call Pause at once.
func (a Admin) Pause(target string, p Pause) {
	p.Detail = probe.CleanText(a.engine.conf.Redact(p.Detail), maxInstanceText)
	a.setPause(target, &p)
}

// Unpause ends the Pause of a target, if it has one. Several goroutines may call it at once.
func (a Admin) Unpause(target string) { a.setPause(target, nil) }

// Suppressed returns why nothing is to be done about a target now, whatever its probes find out: it
// is not to be restarted because a probe fails, and nobody is to be notified of its transitions. The
// reason is probe.ReasonPaused, probe.ReasonMaintenance, probe.ReasonDependency if the target
// depends on another one that is in trouble, or probe.ReasonDamped if its state is probe.StateDamped; it is
// "" if nothing is suppressed. Whoever acts on
// verdicts asks here right before each act, and again a little later if that was suppressed.
// Several goroutines may call it at once.
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

// setPause sets the Pause of a target, nil for none.
func (a Admin) setPause(target string, p *Pause) {
	a.engine.scheduler.mu.Lock()
	defer a.engine.scheduler.unlock()
	a.engine.scheduler.summaries.setPause(target, p)
}

// setPause sets the Pause of a target, nil for none.
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

// setPause sets the Pause of a target, and returns the one that it had. Both may be nil.
func (r *registry) setPause(target string, p *Pause) (before *Pause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.pauses[target]
	if delete(r.pauses, target); p != nil {
		r.pauses[target] = p
	}
	return before
}

// pauseOf returns the Pause of a target, or nil. Do not change it.
func (r *registry) pauseOf(target string) *Pause {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.pauses[target]
}
