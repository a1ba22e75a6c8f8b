// Package health finds out when the engine itself was stalled: when its process was
// stopped, its machine frozen, or its processor time used up. Attempts that lost time
// in this way must not fail, and an engine that keeps losing time must not restart
// anything.
//
// It is a plain data structure. It has no clock, no lock and no goroutine: the caller
// passes the time, in nanoseconds, to each call, and makes one call at a time.
//
//	health.go  Monitor: finds stalls
//	score.go   the health score
//	delays.go  the longest delay since a time
//	isolation.go  whether the engine is cut off from its targets
package health

import "time"

// Tolerance is how late the loop may look at the clock. More is a stall. A loop on an
// idle machine is some 0.1 ms late, one that shares its processors with several busy
// programs a few milliseconds.
const Tolerance = int64(10 * time.Millisecond)

// Monitor compares the times at which the engine's loop looks at the clock with those at
// which it should have. The zero Monitor expects nothing.
type Monitor struct {
	Lost   int64  // time lost to stalls in all, in nanoseconds
	Stalls uint64 // how many there were

	due    int64 // when the loop looks at the clock again, at the latest; 0: at some time
	delays delays
	score  score
}

// Await says that the loop looks at the clock at now, and will do so again at due at the
// latest: when it wakes up, or at once while it works. Never is 0.
func (m *Monitor) Await(now, due int64) {
	m.Observe(now)
	m.due = due
}

// Observe accounts for a stall that has ended. Others than the loop call it before they
// read from the Monitor: after a stall they may run before the loop does.
func (m *Monitor) Observe(now int64) {
	late := now - m.due
	if m.due == 0 || late <= Tolerance {
		return
	}
	m.due = now
	m.Lost += late
	m.Stalls++
	m.delays.add(now, late)
	m.score.lost(now, late)
}

// Worked says that the loop has worked without looking at what is ready for a time that
// ends at now. What became ready meanwhile was delayed by that much at most.
func (m *Monitor) Worked(now, length int64) {
	if length > Tolerance {
		m.delays.add(now, length)
	}
}

// Longest returns the longest delay that ended after since, whether it was a stall or
// work, rounded up by a quarter at most.
func (m *Monitor) Longest(since int64) int64 { return m.delays.longest(since) }

// Blame says that an attempt could not be made at now, for a reason that is the engine's.
func (m *Monitor) Blame(now int64) { m.score.blame(now) }

// Score returns the health score at now, from 0 for a healthy engine to MaxScore.
func (m *Monitor) Score(now int64) int { return m.score.at(now) }
