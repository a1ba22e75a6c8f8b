// Package health detects when the engine itself was stalled: when its process was stopped, its machine was frozen, or its CPU
// time was used up. Attempts that lost time because of a stall must not fail, and an engine that keeps losing time must not
// restart anything.
//
// It has no clock and starts no goroutine: the caller passes the time, in nanoseconds, to each call. A Monitor is safe for
// concurrent use by multiple goroutines, an Isolation is not.
//
//	health.go     Monitor: detects stalls, and publishes the health of the engine
//	score.go      the health score
//	delays.go     the longest delay since a given time
//	isolation.go  Isolation: whether the engine is cut off from its targets
package health

import (
	"sync"
	"time"
)

// Tolerance is the maximum delay of the loop that does not count as a stall. On an idle machine the loop is about 0.1 ms late,
// next to several busy programs on the same processors a few milliseconds.
const Tolerance = int64(10 * time.Millisecond)

// Monitor compares the times at which the engine's loop reads the clock with the times at which it should. The zero Monitor
// expects nothing.
type Monitor struct {
	mu     sync.Mutex // guards the fields below
	lost   int64
	stalls uint64
	due    int64 // when the loop reads the clock again, at the latest; 0 if nothing is expected
	delays delays
	score  score

	namesIsolatedUntil, isolatedUntil int64
}

// State is the state of a Monitor.
type State struct {
	Score         int    // from 0 for a healthy engine to MaxScore
	Lost          int64  // total time lost to stalls, in nanoseconds
	Stalls        uint64 // number of stalls
	NamesIsolated bool
	Isolated      bool
}

// Await records that the loop reads the clock at now, and will do so again no later than due: its next wake-up, or now while it
// works. It returns the total time lost to stalls.
func (m *Monitor) Await(now, due int64) (lost int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe(now)
	m.due = due
	return m.lost
}

// Observe accounts for a stall that has just ended. It is for callers other than the loop, which may run before the loop after a
// stall. It returns the total time lost to stalls.
func (m *Monitor) Observe(now int64) (lost int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe(now)
	return m.lost
}

// observe needs mu.
func (m *Monitor) observe(now int64) {
	late := now - m.due
	if m.due == 0 || late <= Tolerance {
		return
	}
	m.due = now
	m.lost += late
	m.stalls++
	m.delays.add(now, late)
	m.score.lost(now, late)
}

// Worked records that, until now, the loop worked for length without checking for ready descriptors. Descriptors that became
// ready in that time were delayed by at most length.
func (m *Monitor) Worked(now, length int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if length > Tolerance {
		m.delays.add(now, length)
	}
}

// Longest returns the longest delay that ended after since, whether caused by a stall or by work, rounded up by at most a
// quarter.
func (m *Monitor) Longest(since int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.delays.longest(since)
}

// Blame records that an attempt could not be made at now, for a reason of the engine.
func (m *Monitor) Blame(now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.score.blame(now)
}

// SetIsolated sets until when the engine counts as cut off from names, and from all targets.
func (m *Monitor) SetIsolated(namesUntil, until int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.namesIsolatedUntil, m.isolatedUntil = namesUntil, until
}

// Score returns the health score at now.
func (m *Monitor) Score(now int64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.score.at(now)
}

// State returns the state at now.
func (m *Monitor) State(now int64) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe(now)
	return State{m.score.at(now), m.lost, m.stalls, now < m.namesIsolatedUntil, now < m.isolatedUntil}
}
