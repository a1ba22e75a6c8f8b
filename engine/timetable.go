package engine

import (
	"time"

	"github.com/sonde-probe/sonde/engine/internal/schedule"
	"github.com/sonde-probe/sonde/internal/clock"
)

// timetable has the due times of probes, and publishes them. scheduler.mu guards it.
type timetable struct {
	schedule *schedule.Schedule[*attempt]
	clock    *clock.Clock
}

// at schedules a probe at one of its regular times.
func (t *timetable) at(s *slot, at int64) {
	t.schedule.At(s.key, at)
	s.setNext(at)
}

// extra schedules an extra attempt of a probe at any time.
func (t *timetable) extra(s *slot, at int64) {
	t.schedule.Extra(s.key, at)
	s.setNext(at)
}

// idle unschedules a probe.
func (t *timetable) idle(s *slot) {
	t.schedule.Cancel(s.key)
	s.setNext(0)
}

// first schedules the first attempt of a probe that no longer has to wait, no earlier than from. It is an extra attempt at from
// if the probe may have one, and otherwise the first regular attempt.
func (t *timetable) first(s *slot, from int64) {
	if !s.spec.Load().attemptsAtOnce() {
		from = t.schedule.Times(s.key).From(from)
	}
	t.extra(s, from)
}

// wait makes a probe wait until a time or, if until is zero, until a change.
func (t *timetable) wait(s *slot, until time.Time) {
	if until.IsZero() {
		t.idle(s)
	} else {
		t.first(s, t.clock.At(until))
	}
}

// configure sets the regular times of a probe to those of another spec.
func (t *timetable) configure(s *slot, sp *spec) {
	t.schedule.Configure(s.key, schedule.TimesOf(s.id(), s.period(&sp.rule)), sp.stepper != nil)
}

// adaptPeriod sets the regular times of a probe to those of its state, and reports whether they have changed.
func (t *timetable) adaptPeriod(s *slot, sp *spec) bool {
	period := s.period(&sp.rule)
	if t.schedule.Times(s.key).Period == int64(period) {
		return false
	}
	t.schedule.Configure(s.key, schedule.TimesOf(s.id(), period), sp.stepper != nil)
	return true
}
