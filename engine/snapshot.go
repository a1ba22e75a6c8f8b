package engine

import (
	"github.com/sonde-probe/sonde/internal/clock"
	"github.com/sonde-probe/sonde/probe"
)

// Snapshot returns the Memory of a probe, and whether the probe exists. It never waits for the scheduler.
func (e *Engine) Snapshot(id probe.ID) (Memory, bool) {
	s := e.registry.probe(id)
	if s == nil {
		return Memory{}, false
	}
	return s.memory(e.scheduler.clock), true
}

func (s *slot) memory(c *clock.Clock) Memory {
	in := s.target.current()
	s.mu.Lock()
	m := Memory{State: s.state, Since: c.Time(s.since), Changes: s.changes, Warned: s.marks.has(markWarned), Fault: s.fault(c)}
	address, sp, isProven := s.address, s.spec.Load(), s.marks.has(markProven)
	s.mu.Unlock()
	if isProven && s.kind != probe.Readiness {
		m.Proven = sp.proof
	}
	m.Endpoint = endpointOf(sp.configured, sp.targetOf(s.target.name, address))
	m.Handler = handlerOf(sp.handlerName, sp.revision)
	if in.id == m.State.Instance {
		m.Started, m.InstanceSince = in.started, c.Time(in.since)
	}
	return m
}
