package beatprobe

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// margin is how late the engine may be itself, to read a beat or to notice that it was stopped.
// Each deadline is so much later.
const margin = time.Second

// The reasons of a failure.
const (
	reasonMissed probe.Reason = "beat.missed" // the target has sent no beat for too long
	reasonFailed probe.Reason = "beat.failed" // the last beat of the target reports a failure
)

// sighting is what is known of the beats of a target at one time. Times are those of a clock; 0
// stands for none.
type sighting struct {
	now      int64
	wall     int64 // the same by the wall clock, in nanoseconds since 1970
	expected int64 // since when there should be beats: of this instance, by this configuration
	heard    int64 // since when the engine has listened without an interruption
	last     int64 // when the last beat came that is not Started
	report   Report
}

// time returns when a time was, by the wall clock as it is set now.
func (s sighting) time(at int64) time.Time { return time.Unix(0, s.wall+at-s.now) }

// judge returns the result of an attempt. It depends on nothing but its arguments.
//
// The next beat is due as its rhythm says after the last one, or after the instance has started. An
// interruption excuses a target from that if a beat may have been due in it: then the next one is due
// as after the end of the interruption. By every, a beat is due grace before that at the earliest,
// so that an interruption in the midst of a long wait for the next beat excuses nothing; by cron, not before its time.
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

// failed is the result after a beat that reports a failure.
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

// awaited is the result while no beat need have come.
func (s sighting) awaited(has, excused bool, left time.Duration) probe.Result {
	switch {
	case excused && has:
		return unheard("last beat %s ago; the engine may have missed one since, and waits for another %s", probe.Brief(time.Duration(s.now-s.last)), probe.Brief(left))
	case excused:
		return unheard("no beat since the engine listens; it waits for another %s", probe.Brief(left))
	}
	return unheard("no beat yet; the first one is due in %s", probe.Brief(left))
}

func (s sighting) missed(has bool, ago time.Duration, expected string) probe.Result {
	if !has {
		return probe.Fail(reasonMissed, "no beat for %s, since they are expected; %s", probe.Brief(time.Duration(s.now-s.expected)), expected)
	}
	return probe.Fail(reasonMissed, "last beat %s ago; %s", probe.Brief(ago), expected)
}
