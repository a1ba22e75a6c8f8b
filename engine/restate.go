package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Restated is what another engine knows of a target: see Admin.Restate.
type Restated struct {
	Memories map[probe.ID]Memory // of its probes; their endpoints and handlers do not matter: the other engine has compared them

	// Results are those that have decided the verdicts of Memories, if they are known, or warnings of probes that pass:
	// they are shown as of then. A probe whose result is unknown is blind: see Status.Blind.
	Results map[probe.ID]probe.Result

	// IsDecided says that it is known that the target is not ready, although no attempt has found that of its instance: an earlier
	// one was.
	IsDecided bool

	// Since is when the target got into State, if that is one of trouble, unreachable, damped or paused. It counts while this
	// engine finds the same state.
	State probe.TargetState
	Since time.Time

	Ejections map[probe.ID]Ejection // of probes in Memories; others have none
	Penalty   verdict.Penalty       // counts if this engine has a damping of the target, too: see Change.Dampings
}

// RestateSince says since when a target is in a state, as another engine knows it that had the target before: see Restated.Since.
// It counts until the target is ready. Several goroutines may call it at once.
func (a Admin) RestateSince(target string, state probe.TargetState, since time.Time) {
	sc := a.engine.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	if t, _ := a.engine.registry.target(target); t != nil {
		a.engine.registry.restateSince(t, state, sc.clock.At(since), sc.clock.Now())
	}
}

// Restate gives a target the instance and its probes the memories that another engine has of them, in one
// step, with the ejections and the penalty of the target: for an engine that never runs, and shows what others
// find out. Probes without a memory stay as they are, and so does all of a target without probes. A memory that
// its probe cannot have is left out: the error joins those about such memories, and those about probes that do
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
			errs = append(errs, fmt.Errorf("probe %q is not one of target %q", id, in.Target))
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
