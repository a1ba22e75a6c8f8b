package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// Health says whether the engine itself is well. It is not well while its process is
// stopped or short of processor time, or attempts cannot be made for a reason that is the
// engine's.
type Health struct {
	// Score is 0 for a healthy engine. Each second in which the engine was not well
	// raises it by 1, up to MaxHealthScore, and each clean second lowers it by 1. While
	// it is above 0, the timeout of an attempt is Rule.Timeout * (1 + Score), but not
	// more than 7/8 of Rule.Period where Rule.Timeout is less. Non-blocking attempts get no more
	// time while half of their places are taken.
	Score int

	// Isolated says that no target answers that is probed by its address or, if there is
	// none of them, by its name: see Config.NoIsolationCheck.
	Isolated bool

	// NamesIsolated says that no name server answers, or no target that is probed by its
	// name. Addresses are probed as ever.
	NamesIsolated bool

	Stalls  uint64        // how many times the engine was stalled for more than 10 ms
	Stalled time.Duration // for how long in all
}

const (
	// MaxHealthScore is the greatest Health.Score.
	MaxHealthScore = health.MaxScore

	// degradedScore is the Health.Score from which an engine is degraded: one second
	// that was not clean is not enough.
	degradedScore = 2
)

// Degraded reports whether the engine is so unwell that its verdicts should restart nothing
// for a while: see Engine.Doubts.
func (h Health) Degraded() bool { return h.Score >= degradedScore }

// Err returns an error that says how degraded or isolated the engine is, or nil if it is
// neither. It is nil if only NamesIsolated is true.
func (h Health) Err() error {
	switch {
	case h.Isolated:
		return errors.New("the engine is isolated: no target answers; check the network and the name servers of this machine")
	case !h.Degraded():
		return nil
	}
	return fmt.Errorf("the engine is degraded: health score %d (0 is healthy, %d the worst), stalled for %v in all; check its CPU quota, memory and descriptors",
		h.Score, MaxHealthScore, h.Stalled.Round(time.Millisecond))
}

// maxDoubt is for how long a degraded engine doubts a failing verdict: as long as the
// longest back-off of Kubernetes.
const maxDoubt = 5 * time.Minute

// Doubts reports whether a failing verdict may be the fault of the engine, its machine or
// its network, so that nothing should be restarted because of it. While the engine is
// degraded, that is so for five minutes, unless the target has answered with the latest
// failure: by refusing a connection, for example, or with a status or an exit code. While it
// is cut off from the host that the probe connects to, that is so if the latest attempt
// lacks an answer.
func (e *Engine) Doubts(id probe.ID) bool {
	s, h := e.registry.probe(id), e.Health()
	if s == nil || !h.isUnwell() {
		return false
	}
	e.scheduler.mu.Lock()
	defer e.scheduler.mu.Unlock()
	return e.scheduler.summaries.doubts(s, h)
}

// isUnwell reports whether the engine may doubt a failing verdict.
func (h Health) isUnwell() bool { return h.Degraded() || h.Isolated || h.NamesIsolated }

// doubts is Engine.Doubts for a probe that exists.
func (m *summaries) doubts(s *slot, h Health) bool {
	isCutOff := h.Isolated || h.NamesIsolated && isName(m.peers.hostOf(s))
	isDoubtful := !s.flags.has(failureAnswered) && m.clock.Now()-s.publishedAt() < int64(maxDoubt)
	return h.Degraded() && isDoubtful || isCutOff && s.peer != 0 && s.missing != 0
}

// Health returns how well the engine is.
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
