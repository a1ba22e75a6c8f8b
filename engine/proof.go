package engine

import (
	"fmt"
	"hash/fnv"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// proofOf returns the Memory.Proven of a probe whose attempts have succeeded: a hash of the handler and of what the rule adds
// to its verdicts, which is never 0. It must not change, as that of endpointOf.
func proofOf(r *probe.Rule, name, revision string) uint32 {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, r.InitialDelay, r.Period, r.StartingPeriod, r.FailingPeriod, r.Timeout, r.FailAfter, r.FailureThreshold, r.Policy, r.OnError, "\x00", name, "\x00", revision)
	return max(h.Sum32(), 1)
}

// Definition identifies the handler of a probe and what its rule adds to its verdicts, in any engine: a hash, which is never 0.
func Definition(p probe.Probe) uint32 {
	r := p.Rule.WithDefaults()
	return proofOf(&r, p.HandlerName, p.Revision)
}

// prove notes that an attempt of a spec has an outcome that counts, and reports whether it is the first success of the probe
// as it is now.
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

// unprove forgets what attempts have shown, since the probe is another one now.
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

// adopt makes a memory one of a desired probe: a probe with another endpoint does not know its verdict, and one with another
// handler begins a new run.
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
