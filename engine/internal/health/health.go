// Package health finds out when the engine itself was stalled: when its process was
// stopped, its machine frozen, or its processor time used up. Attempts that lost time
// in this way must not fail, and an engine that keeps losing time must not restart
// anything.
//
// It has no clock and no goroutine: the caller passes the time, in nanoseconds, to each
// call. A Monitor may be used by several goroutines, an Isolation by one at a time.
//
//	health.go     Monitor: finds stalls, and publishes the health of the engine
//	score.go      the health score
//	delays.go     the longest delay since a time
//	isolation.go  Isolation: whether the engine is cut off from its targets
package health

import (
	"sync"
	"time"
)

// Tolerance is how late the loop may look at the clock. More is a stall. A loop on an
// idle machine is some 0.1 ms late, one that shares its processors with several busy
// programs a few milliseconds.
const Tolerance = int64(10 * time.Millisecond)

// Monitor compares the times at which the engine's loop looks at the clock with those at
// which it should have. The zero Monitor expects nothing.
type Monitor struct {
	mu     sync.Mutex // guards the fields below
	lost   int64
	stalls uint64
	due    int64 // when the loop looks at the clock again, at the latest; 0: nothing is expected
	delays delays
	score  score

	namesIsolatedUntil, isolatedUntil int64
}

// State is what a Monitor has found out.
type State struct {
	Score         int    // from 0 for a healthy engine to MaxScore
	Lost          int64  // time lost to stalls in all, in nanoseconds
	Stalls        uint64 // how many there were
	NamesIsolated bool
	Isolated      bool
}

// Await says that the loop looks at the clock at now, and will do so again at due at the
// latest: when it wakes up, or at once while it works. It returns the time that was lost to
// stalls in all.
func (m *Monitor) Await(now, due int64) (lost int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe(now)
	m.due = due
	return m.lost
}

// Observe accounts for a stall that has ended. Others than the loop call it: after a stall
// they may run before the loop does. It returns the time that was lost to stalls in all.
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

// Worked says that the loop has worked without looking at what is ready for a time that
// ends at now. What became ready meanwhile was delayed by that much at most.
func (m *Monitor) Worked(now, length int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if length > Tolerance {
		m.delays.add(now, length)
	}
}

// Longest returns the longest delay that ended after since, whether it was a stall or
// work, rounded up by a quarter at most.
func (m *Monitor) Longest(since int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.delays.longest(since)
}

// Blame says that an attempt could not be made at now, for a reason that is the engine's.
func (m *Monitor) Blame(now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.score.blame(now)
}

// SetIsolated says until when the engine counts as cut off from names, and from all.
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

// State returns what is known at now.
func (m *Monitor) State(now int64) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe(now)
	return State{m.score.at(now), m.lost, m.stalls, now < m.namesIsolatedUntil, now < m.isolatedUntil}
}
