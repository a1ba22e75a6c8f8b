package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/internal/clock"
)

// timetable has the times at which probes are due, and publishes them. scheduler.mu guards it.
type timetable struct {
	schedule *schedule.Schedule[*attempt]
	clock    *clock.Clock
}

// at makes a probe due at one of its regular times.
func (t *timetable) at(s *slot, at int64) {
	t.schedule.At(s.key, at)
	s.setNext(at)
}

// extra makes a probe due at a time of its own.
func (t *timetable) extra(s *slot, at int64) {
	t.schedule.Extra(s.key, at)
	s.setNext(at)
}

// idle makes a probe not due.
func (t *timetable) idle(s *slot) {
	t.schedule.Cancel(s.key)
	s.setNext(0)
}

// first makes the first attempt due of a probe that need not wait after a time. It is
// an extra attempt at that time if the probe may have one, and else the first regular
// attempt.
func (t *timetable) first(s *slot, from int64) {
	if !s.spec.Load().attemptsAtOnce() {
		from = t.schedule.Times(s.key).From(from)
	}
	t.extra(s, from)
}

// wait lets a probe wait until a time, or with the zero time for a change.
func (t *timetable) wait(s *slot, until time.Time) {
	if until.IsZero() {
		t.idle(s)
	} else {
		t.first(s, t.clock.At(until))
	}
}

// configure gives a probe the regular times of another spec.
func (t *timetable) configure(s *slot, sp *spec) {
	t.schedule.Configure(s.key, schedule.TimesOf(s.id(), s.period(&sp.rule)), sp.stepper != nil)
}

// adaptPeriod gives a probe the regular times of its state, and reports whether it had others.
func (t *timetable) adaptPeriod(s *slot, sp *spec) bool {
	period := s.period(&sp.rule)
	if t.schedule.Times(s.key).Period == int64(period) {
		return false
	}
	t.schedule.Configure(s.key, schedule.TimesOf(s.id(), period), sp.stepper != nil)
	return true
}
