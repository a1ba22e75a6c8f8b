package engine

import (
	"fmt"
	"hash/fnv"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// proofOf returns the Memory.Proven of a probe whose attempts have succeeded: a hash of the handler and of the parts of the rule
// that affect its verdicts. It is never 0. Like endpointOf, its result must not change.
func proofOf(r *probe.Rule, name, revision string) uint32 {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, r.InitialDelay, r.Period, r.StartingPeriod, r.FailingPeriod, r.Timeout, r.FailAfter, r.FailureThreshold, r.Policy, r.OnError, "\x00", name, "\x00", revision)
	return max(h.Sum32(), 1)
}

// Definition identifies the handler of a probe and the parts of its rule that affect its verdicts, in any engine: a hash that is
// never 0.
func Definition(p probe.Probe) uint32 {
	r := p.Rule.WithDefaults()
	return proofOf(&r, p.HandlerName, p.Revision)
}

// prove records an outcome that counts, of an attempt with the spec by. It reports whether this is the first success of the probe
// in its current form.
func (s *slot) prove(by *spec, outcome probe.Outcome) (isNew bool) {
	if sp := s.spec.Load(); by != sp && by.proof != sp.proof {
		return false // the probe was changed meanwhile
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.marks.has(markProven):
	case outcome == probe.Failure:
		s.marks.set(markRefuted, true)
	case outcome == probe.Success, outcome == probe.Warning:
		s.marks.set(markProven, true)
		return s.kind != probe.Readiness
	}
	return false
}

// unprove discards the recorded outcomes, since the probe has changed.
func (marks *bits) unprove() { marks.set(markProven|markRefuted, false) }

// tried returns the Status.Tried of a probe.
func (marks bits) tried() probe.Outcome {
	switch {
	case marks.has(markProven):
		return probe.Success
	case marks.has(markRefuted):
		return probe.Failure
	}
	return probe.Unknown
}

// adopt adapts a memory to the desired probe: if the endpoint differs, the verdict is dropped; if the handler differs, the probe
// starts a new run.
func (m *Memory) adopt(k probe.Kind, desired *probe.Probe) {
	isMoved := m.Endpoint != 0 && m.Endpoint != endpointOf(desired.Handler, desired.Target)
	if isMoved {
		m.State = verdict.Relocate(k, m.State)
	} else if m.Handler != 0 && m.Handler != handlerOf(desired.HandlerName, desired.Revision) {
		m.State = verdict.Renew(k, m.State)
	}
	if isMoved || m.Proven != proofOf(&desired.Rule, desired.HandlerName, desired.Revision) {
		m.Proven = 0
	}
}
