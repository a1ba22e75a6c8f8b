package engine

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// Restate gives a target the instance and its probes the memories that another engine has of them, in one
// step: for an engine that never runs, and shows what others find out. Probes without a memory stay as they
// are, and so does all of a target without probes. A memory that its probe cannot have is left out: the error
// joins those about such memories, and those about probes that do not exist.
//
// The endpoints and the handlers of memories do not matter: the other engine has compared them. Results are those that
// have decided the verdicts of memories, as far as they are known: they are shown as of then.
func (e *Engine) Restate(in probe.Instance, memories map[probe.ID]Memory, results map[probe.ID]probe.Result) error {
	in.Detail = probe.CleanText(e.conf.Redact(in.Detail), maxInstanceText)
	sc := e.scheduler
	sc.mu.Lock()
	defer sc.unlock()
	t, slots := e.registry.target(in.Target)
	if t == nil || len(slots) == 0 {
		return fmt.Errorf("target %q has no probes", in.Target)
	}
	var errs []error
	restored := map[*slot]Memory{}
	now := newInstance(in, sc.clock)
	for id, m := range memories {
		s := e.registry.probe(id)
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
	t.instance.Store(now)
	for s, m := range restored {
		s.mu.Lock()
		s.restore(&m, sc.clock)
		s.waitReason, s.result, s.resultAt = verdict.NotWaiting, nil, 0
		if r, isKnown := results[s.id()]; isKnown {
			r.Detail = e.conf.Redact(r.Detail)
			s.result, s.resultAt = &r, s.since
		}
		s.mu.Unlock()
		sc.notify(s.id(), probeChanged)
	}
	sc.updateStateOf(t, false)
	sc.notifyTarget(t.name, probeChanged)
	return errors.Join(errs...)
}
