package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Restated is the state of a target in another engine: see Admin.Restate.
type Restated struct {
	Memories map[probe.ID]Memory // of its probes; their Endpoint and Handler are ignored, since the other engine has compared them

	// Results are the known results that decided the verdicts of Memories, or the warnings of passing probes. They are shown as
	// of that time. A probe whose result is unknown is blind: see Status.Blind.
	Results map[probe.ID]probe.Result

	// IsDecided means that the target is known not to be ready, although no attempt on its current instance has found that: an
	// earlier instance was ready.
	IsDecided bool

	// Since is when the target entered State, if that is a state of trouble, unreachable, damped or paused. It applies while this
	// engine finds the same state.
	State probe.TargetState
	Since time.Time

	Ejections map[probe.ID]Ejection // of probes in Memories; other probes are not ejected
	Penalty   verdict.Penalty       // applies if this engine also has a damping for the target: see Change.Dampings
}

// RestateSince sets when a target entered a state, as reported by another engine that had the target before: see Restated.Since.
// It applies until the target is ready. It is safe for concurrent use.
func (a Admin) RestateSince(target string, state probe.TargetState, since time.Time) {
	sc := a.engine.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	if t, _ := a.engine.registry.target(target); t != nil {
		a.engine.registry.restateSince(t, state, sc.clock.At(since), sc.clock.Now())
	}
}

// Restate sets the instance of a target, the memories of its probes, and its ejections and penalty to those of another engine, in
// one step. It is for an engine that never runs but mirrors other engines. Probes without a memory keep their state, and a target
// without probes is an error. Invalid memories are skipped: the error joins those about invalid memories and about probes that do
// not exist.
func (a Admin) Restate(in probe.Instance, of Restated) error {
	in.ID = probe.InstanceID(in.ID)
	in.Detail = probe.CleanText(a.engine.conf.Redact(in.Detail), maxInstanceText)
	sc := a.engine.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	t, slots := a.engine.registry.target(in.Target)
	if t == nil || len(slots) == 0 {
		return fmt.Errorf("target %q has no probes", in.Target)
	}
	var errs []error
	restored := map[*slot]Memory{}
	now := newInstance(in, sc.clock)
	for id, m := range of.Memories {
		s := a.engine.registry.probe(id)
		if s == nil || s.target != t {
			errs = append(errs, fmt.Errorf("probe %q does not belong to target %q", id, in.Target))
			continue
		}
		state, err := verdict.Restore(s.spec.Load().rule, m.State)
		if err != nil {
			errs = append(errs, fmt.Errorf("probe %q: %w", id, err))
			continue
		}
		m.State = state
		restored[s] = m
		now.started = now.started || m.Started && state.Instance == in.ID
	}
	now.decided = of.IsDecided
	t.instance.Store(now)
	for s, m := range restored {
		s.mu.Lock()
		s.restore(&m, sc.clock)
		s.waitReason, s.result, s.resultAt = verdict.NotWaiting, nil, 0
		r, isKnown := of.Results[s.id()]
		s.setWarnings(verdict.Warnings{Warns: isKnown && r.Outcome == probe.Warning})
		s.marks.set(markBlind, isKnown && r.Outcome == probe.Unknown)
		if isKnown {
			r.Detail = a.engine.conf.Redact(r.Detail)
			s.result, s.resultAt = &r, s.since
			if r.Outcome != probe.Unknown {
				s.noteFault(fault{s.since, r.Reason, r.Detail, r.Outcome})
			}
		}
		if ejection, isEjected := of.Ejections[s.id()]; isEjected {
			ejection.Probe, ejection.Detail = s.id(), a.engine.conf.Redact(ejection.Detail)
			s.makeRare().observed = &observed{ejection: &ejection, since: sc.clock.At(ejection.Since)}
		} else if s.rare != nil {
			s.rare.observed = nil
		}
		s.mu.Unlock()
		sc.subscribers.notifyProbe(s.id(), probeChanged)
	}
	if d := sc.registry.dampingOf(t.name); d != nil {
		sc.summaries.replacePenalty(t.name, &d.rule, sc.summaries.restoredPenalty(d.rule, of.Penalty, sc.clock.Now()))
	}
	sc.summaries.updateStateOf(t, false)
	a.engine.registry.restateSince(t, of.State, sc.clock.At(of.Since), sc.clock.Now())
	sc.subscribers.notifyTarget(t.name, probeChanged)
	return errors.Join(errs...)
}
