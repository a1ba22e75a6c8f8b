package beatprobe

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// margin is how late the engine itself may be to read a beat or to notice that it was stopped. Each deadline is extended by it.
const margin = time.Second

// Reasons of failures.
const (
	reasonMissed probe.Reason = "beat.missed" // the target has sent no beat for too long
	reasonFailed probe.Reason = "beat.failed" // the last beat of the target reports a failure
)

// sighting describes the beats of a target at one time. Times are those of a clock.Clock; 0 means none.
type sighting struct {
	now      int64
	wall     int64 // now by the wall clock, in nanoseconds since 1970
	expected int64 // since when beats of this instance are expected, by this configuration
	heard    int64 // since when the engine has listened without interruption
	last     int64 // when the last beat other than Started came
	report   Report
}

// time converts a clock time to the wall clock as it is set now.
func (s sighting) time(at int64) time.Time { return time.Unix(0, s.wall+at-s.now) }

// judge returns the result of an attempt. It depends only on s and by.
//
// The next beat is due one step of the rhythm after the last beat, or after the start of the instance. An interruption excuses the
// target if a beat may have been due during it: then the next beat is due one step after the end of the interruption. With every, a
// beat can come at most grace before it is due, so an interruption in the middle of a long interval excuses nothing. With cron, it
// cannot come early.
func (s sighting) judge(by rhythm) probe.Result {
	has := s.last > 0 && s.last >= s.expected
	from := s.expected
	if has {
		from = s.last
	}
	due, earliest := by.due(s, from, has)
	excused := s.heard > from && (!has || s.heard >= earliest)
	late := int64(by.grace + margin)
	ago := time.Duration(s.now - s.last)
	switch {
	case has && s.report.Status == Failed && !excused:
		return s.failed(ago)
	case has && s.report.Status == OK && s.now <= due+late:
		return probe.Succeed("last beat " + probe.Brief(ago) + " ago")
	case excused:
		due, _ = by.due(s, s.heard, false)
	}
	if left := due + late - s.now; left >= 0 {
		return s.awaited(has, excused, time.Duration(left))
	}
	return s.missed(has, ago, by.expected(s, due))
}

// failed returns the result after a beat that reports a failure.
func (s sighting) failed(ago time.Duration) probe.Result {
	text := "the target has reported a failure " + probe.Brief(ago) + " ago"
	if s.report.Exit != 0 {
		text += fmt.Sprintf(", exit status %d", s.report.Exit)
	}
	if s.report.Detail != "" {
		text += ": " + s.report.Detail
	}
	return probe.Fail(reasonFailed, "%s", text)
}

// awaited returns the result while the next beat is not overdue.
func (s sighting) awaited(has, excused bool, left time.Duration) probe.Result {
	switch {
	case excused && has:
		return unheard("last beat %s ago; the engine may have missed one since and waits %s longer", probe.Brief(time.Duration(s.now-s.last)), probe.Brief(left))
	case excused:
		return unheard("no beat since the engine started to listen; it waits %s longer", probe.Brief(left))
	}
	return unheard("no beat yet; the first one is due in %s", probe.Brief(left))
}

func (s sighting) missed(has bool, ago time.Duration, expected string) probe.Result {
	if !has {
		return probe.Fail(reasonMissed, "no beat in the %s since beats are expected; %s", probe.Brief(time.Duration(s.now-s.expected)), expected)
	}
	return probe.Fail(reasonMissed, "last beat %s ago; %s", probe.Brief(ago), expected)
}
