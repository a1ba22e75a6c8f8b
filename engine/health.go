package engine

import (
	"errors"
	"fmt"
	"sync"
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
	// more than Rule.Period where Rule.Timeout is less. Non-blocking attempts get no more
	// time while half of their places are taken.
	Score int

	// Isolated says that no target or name server answers: see Config.NoIsolationCheck.
	Isolated bool

	Stalls  uint64        // how many times the engine was stalled for more than 10 ms
	Stalled time.Duration // for how long in all
}

const (
	// MaxHealthScore is the greatest Health.Score.
	MaxHealthScore = health.MaxScore

	// DegradedScore is the Health.Score from which an engine is degraded: one second
	// that was not clean is not enough.
	DegradedScore = 2
)

// Degraded reports whether the engine is so unwell that nothing should be restarted
// because of its verdicts.
func (h Health) Degraded() bool { return h.Score >= DegradedScore }

// Err returns an error that says how degraded or isolated the engine is, or nil if it is
// neither.
func (h Health) Err() error {
	switch {
	case h.Isolated:
		return errors.New("the engine is isolated: no target or name server answers; check the network and the name servers of this machine")
	case !h.Degraded():
		return nil
	}
	return fmt.Errorf("the engine is degraded: health score %d of %d (0 is healthy), stalled for %v in all; check its CPU quota, memory and descriptors",
		h.Score, MaxHealthScore, h.Stalled.Round(time.Millisecond))
}

// Health returns how well the engine is.
func (e *Engine) Health() Health { return e.scheduler.monitor.read() }

// monitor is a health.Monitor for several goroutines.
type monitor struct {
	clock *clock

	mu            sync.Mutex // guards the fields below
	health        health.Monitor
	isolatedUntil int64 // or the next answer
}

const (
	// stallShare is the part of an attempt's timeout, one in so many, that may be lost
	// to stalls before the attempt must not fail.
	stallShare = 8

	// maxTick and minTick bound how often the loop looks at the clock while attempts are
	// in flight, so that it notices a stall that ends before anything is due. The tick
	// is a stallShare of the shortest timeout.
	maxTick = 100 * time.Millisecond
	minTick = time.Duration(health.Tolerance)
)

// tickOf returns how often to look at the clock while an attempt is in flight.
func tickOf(timeout time.Duration) time.Duration {
	return min(max(minTick, timeout/stallShare), maxTick)
}

// await says that the loop looks at the clock at now, and again at due; while it works,
// that is now too. It returns the time that was lost to stalls in all.
func (m *monitor) await(now, due int64) (lost int64) {
	if due == never {
		due = 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.health.Await(now, due)
	return m.health.Lost
}

// observe is await for others than the loop: after a stall they may run first.
func (m *monitor) observe(now int64) (lost int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.health.Observe(now)
	return m.health.Lost
}

// worked says that the loop has not looked at what is ready for a time.
func (m *monitor) worked(now, length int64) {
	m.mu.Lock()
	m.health.Worked(now, length)
	m.mu.Unlock()
}

// longest returns the longest delay that ended after since.
func (m *monitor) longest(since int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.health.Longest(since)
}

// setIsolatedUntil publishes until when the engine counts as isolated; 0 if it does not.
func (m *monitor) setIsolatedUntil(at int64) {
	m.mu.Lock()
	m.isolatedUntil = at
	m.mu.Unlock()
}

// blame says that an attempt could not be made for a reason that is the engine's.
func (m *monitor) blame(now int64) {
	m.mu.Lock()
	m.health.Blame(now)
	m.mu.Unlock()
}

func (m *monitor) read() Health {
	now := m.clock.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.health.Observe(now)
	return Health{Score: m.health.Score(now), Isolated: now < m.isolatedUntil, Stalls: m.health.Stalls, Stalled: time.Duration(m.health.Lost)}
}

// timeout returns the timeout of an attempt that starts now.
func (m *monitor) timeout(r *probe.Rule, now int64) time.Duration {
	m.mu.Lock()
	score := m.health.Score(now)
	m.mu.Unlock()
	if score == 0 {
		return r.Timeout
	}
	return max(r.Timeout, min(r.Timeout*time.Duration(1+score), r.Period))
}

// excuse returns the result of a try that was stalled for a time. It may have succeeded,
// and what the target answered counts, but any other failure is not the target's.
func excuse(res probe.Result, lost int64, timeout time.Duration) probe.Result {
	if res.Outcome != probe.Failure || isAnswer(&res, lost < int64(timeout)) {
		return res
	}
	r := probe.Broken(probe.ReasonStalled, "the engine was stalled for %v during the attempt, which ended with %s: %s",
		time.Duration(lost).Round(time.Millisecond), res.Reason, res.Detail)
	r.Timings = res.Timings
	return r
}

// isAnswer reports whether a failure is what the target answered, which does not depend
// on the time that the engine has lost. The answer to a plugin does if much was lost: the
// target may have given up waiting for the plugin.
func isAnswer(res *probe.Result, inTime bool) bool {
	switch res.Reason.Evidence() {
	case probe.Answered, probe.NameAnswered:
		return true
	case probe.NoEvidence:
		return res.Reason == probe.ReasonExecExit && inTime || res.Timings.FirstByte > 0 && inTime
	}
	return false
}

// notable reports whether lost time is a notable part of a timeout.
func notable(lost int64, timeout time.Duration) bool { return lost > int64(timeout)/stallShare }

// stalled reports whether a try, which has ended after a time of which some was lost, was
// stalled: if it has lost a notable part of its timeout, and had less time than its rule
// gives it. The timeout may be longer than that.
func stalled(lost, took int64, timeout time.Duration, r *probe.Rule) bool {
	return notable(lost, timeout) && notable(int64(r.Timeout)-(took-lost), r.Timeout)
}

// maySucceedNow reports whether another try makes sense after one with this result: not
// one that was stalled while the engine is degraded, where it would only add to the load.
func (m *monitor) maySucceedNow(res *probe.Result) bool {
	return res.Reason != probe.ReasonStalled || !m.read().Degraded()
}
