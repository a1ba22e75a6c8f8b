package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// Health is the health of the engine itself. The engine is unhealthy while its process is stopped or short of CPU time, or
// attempts cannot be made for a reason of the engine.
type Health struct {
	// Score is 0 for a healthy engine. Each unhealthy second raises it by 1, up to MaxHealthScore, and each healthy second lowers
	// it by 1. While it is above 0, the timeout of an attempt is Rule.Timeout * (1 + Score), but at most 7/8 of Rule.Period
	// unless Rule.Timeout is longer. The timeout of non-blocking attempts is not extended while more than half of their places
	// are taken.
	Score int

	// Isolated reports that no target that is probed by its address responds or, if there is no such target, none that is probed
	// by its name: see Config.NoIsolationCheck.
	Isolated bool

	// NamesIsolated reports that no name server responds, or no target that is probed by its name. Targets that are probed by
	// address are not affected.
	NamesIsolated bool

	Stalls  uint64        // number of stalls of more than 10 ms
	Stalled time.Duration // total duration of stalls
}

const (
	// MaxHealthScore is the maximum Health.Score.
	MaxHealthScore = health.MaxScore

	// degradedScore is the Health.Score from which an engine is degraded: a single unhealthy second is not enough.
	degradedScore = 2
)

// Degraded reports whether the engine is so unhealthy that its verdicts should not cause restarts for a while: see Engine.Doubts.
func (h Health) Degraded() bool { return h.Score >= degradedScore }

// Err returns an error that describes how the engine is degraded or isolated, or nil if it is neither. It ignores NamesIsolated.
func (h Health) Err() error {
	switch {
	case h.Isolated:
		return errors.New("the engine is isolated: no target responds; check this machine's network and name servers")
	case !h.Degraded():
		return nil
	}
	return fmt.Errorf("the engine is degraded: health score %d (0 is healthy, %d is worst), stalled for %v in total; check its CPU quota, memory and descriptors",
		h.Score, MaxHealthScore, h.Stalled.Round(time.Millisecond))
}

// maxDoubt is how long a degraded engine doubts a failing verdict. It equals the longest back-off of Kubernetes.
const maxDoubt = 5 * time.Minute

// Doubts reports whether a failing verdict may be the fault of the engine, its machine or its network, so that it should not
// cause a restart. While the engine is degraded, it doubts a verdict for five minutes after its publication, unless the latest
// failure was a response of the target, for example a refused connection, a status or an exit code. While the engine is cut off
// from the host that the probe connects to, it doubts the verdict if the latest attempt lacks a response.
func (e *Engine) Doubts(id probe.ID) bool {
	s, h := e.registry.probe(id), e.Health()
	if s == nil || !h.isUnwell() {
		return false
	}
	e.scheduler.mu.Lock()
	defer e.scheduler.mu.Unlock()
	return e.scheduler.summaries.doubts(s, h)
}

// isUnwell reports whether the engine is in a state in which it may doubt a failing verdict.
func (h Health) isUnwell() bool { return h.Degraded() || h.Isolated || h.NamesIsolated }

// doubts is Engine.Doubts for an existing probe.
func (m *summaries) doubts(s *slot, h Health) bool {
	isCutOff := h.Isolated || h.NamesIsolated && isName(m.peers.hostOf(s))
	isDoubtful := !s.flags.has(failureAnswered) && m.clock.Now()-s.publishedAt() < int64(maxDoubt)
	return h.Degraded() && isDoubtful || isCutOff && s.peer != 0 && s.missing != 0
}

// Health returns the current health of the engine.
func (e *Engine) Health() Health {
	return healthAt(e.scheduler.monitor, e.scheduler.clock.Now())
}

func healthAt(m *health.Monitor, now int64) Health {
	st := m.State(now)
	return Health{
		Score: st.Score, Isolated: st.Isolated, NamesIsolated: st.NamesIsolated,
		Stalls: st.Stalls, Stalled: time.Duration(st.Lost),
	}
}
