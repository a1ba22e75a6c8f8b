package engine

import (
	"sync/atomic"

	"github.com/sonde-probe/sonde/probe"
)

// Gauge has a probe's verdict for performance-critical readers, such as a proxy that reads it for each request. Reading it is one
// atomic load, without a lock or a lookup. The zero Gauge is Undecided.
type Gauge struct{ verdict atomic.Uint32 }

// Verdict returns the published verdict.
func (g *Gauge) Verdict() probe.Verdict { return probe.Verdict(g.verdict.Load()) }

// Passing reports whether the published verdict is Passing.
func (g *Gauge) Passing() bool { return g.Verdict() == probe.Passing }

func (g *Gauge) set(v probe.Verdict) { g.verdict.Store(uint32(v)) }

// Watch returns the gauge of a probe, and whether the probe exists. After the probe was removed, the gauge stays Undecided, even
// if a probe with the same ID is added: call Watch again.
func (e *Engine) Watch(id probe.ID) (*Gauge, bool) {
	s := e.registry.probe(id)
	if s == nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &s.makeRare().gauge, true
}

// TargetGauge has the summary of a target for performance-critical readers: each method is one atomic load, without a lock or a
// lookup. The methods return the same values as the fields of TargetStatus with the same names. The zero TargetGauge is
// GatewayUndecided.
type TargetGauge struct{ bits atomic.Uint32 }

// Gateway returns how a gateway is to treat the target.
func (g *TargetGauge) Gateway() probe.GatewayState {
	return probe.GatewayState(g.bits.Load() >> gatewayShift)
}

// State returns the state of the target.
func (g *TargetGauge) State() probe.TargetState { return probe.TargetState(g.bits.Load()) }

// Ready reports whether the target has started and its readiness probes pass.
func (g *TargetGauge) Ready() bool { return g.bits.Load()&readyBit != 0 }

// isDecided reports whether it is known whether the target is ready.
func (g *TargetGauge) isDecided() bool { return g.bits.Load()&decidedBit != 0 }

// WatchTarget returns the gauge of a target, and whether the target exists: it has probes, or its instance was reported. After
// the target was removed, the gauge stays GatewayUndecided, even if a target with the same name is added: call WatchTarget again.
func (e *Engine) WatchTarget(name string) (*TargetGauge, bool) {
	t, _ := e.registry.target(name)
	if t == nil {
		return nil, false
	}
	return &t.gauge, true
}

// summary is the content of a TargetGauge.
type summary struct {
	state          probe.TargetState
	gateway        probe.GatewayState
	ready, decided bool
	ejected        bool
	explains       bool // it explains failures of its dependents
}

// The bits of a summary. The state is in the lowest byte.
const (
	gatewayShift = 8
	readyBit     = 1 << 16
	decidedBit   = 1 << 17
	ejectedBit   = 1 << 18
	explainsBit  = 1 << 19
)

func (g *TargetGauge) summary() summary {
	b := g.bits.Load()
	return summary{g.State(), g.Gateway(), g.Ready(), g.isDecided(), b&ejectedBit != 0, b&explainsBit != 0}
}

func (g *TargetGauge) set(s summary) {
	b := uint32(s.state) | uint32(s.gateway)<<gatewayShift
	if s.ready {
		b |= readyBit
	}
	if s.decided {
		b |= decidedBit
	}
	if s.ejected {
		b |= ejectedBit
	}
	if s.explains {
		b |= explainsBit
	}
	g.bits.Store(b)
}
