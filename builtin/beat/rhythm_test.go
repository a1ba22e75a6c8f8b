package beatprobe

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// calendar returns the rhythm of a cron schedule in a time zone.
func calendar(t *testing.T, schedule, zone string, grace time.Duration) rhythm {
	t.Helper()
	if _, err := time.LoadLocation(zone); err != nil {
		t.Skip("this machine has no time zones: ", err)
	}
	r, err := Config{Cron: schedule, Timezone: zone, Grace: grace}.rhythm()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A job for work days is not overdue on the weekend, but is on the first work day after it.
func TestABeatIsDueByTheCalendar(t *testing.T) {
	workdays := calendar(t, "0 2 * * 1-5", "Europe/Vienna", time.Hour)
	spring := calendar(t, "30 2 * * *", "Europe/Vienna", time.Hour)
	byDay := calendar(t, "*/5 6-23 * * *", "UTC", time.Minute)
	never, ok, failed := "", Report{Status: OK}, Report{Status: Failed}
	for _, c := range []struct {
		name        string
		by          rhythm
		last, heard string // since the beginning of time; last: never means no beat
		report      Report
		now         string
		want        probe.Outcome
		detail      string
	}{
		{"on Saturday", workdays, "2026-01-30T02:20:00+01:00", never, ok, "2026-01-31T12:00:00+01:00", probe.Success, ""},
		{"on Sunday", workdays, "2026-01-30T02:20:00+01:00", never, ok, "2026-02-01T23:59:00+01:00", probe.Success, ""},
		{"on Monday in its grace", workdays, "2026-01-30T02:20:00+01:00", never, ok, "2026-02-02T03:00:01+01:00", probe.Success, ""},
		{"on Monday after it", workdays, "2026-01-30T02:20:00+01:00", never, ok, "2026-02-02T03:00:02+01:00", probe.Failure, "one was due at 2026-02-02T02:00:00+01:00, 1h later at most"},
		{"a missed Tuesday, on Tuesday", workdays, "2026-02-02T02:20:00+01:00", never, ok, "2026-02-03T03:01:00+01:00", probe.Failure, "2026-02-03"},
		{"a clock that is early", workdays, "2026-02-02T01:59:59.5+01:00", never, ok, "2026-02-02T12:00:00+01:00", probe.Success, ""},
		{"late, and back", workdays, "2026-02-02T05:00:00+01:00", never, ok, "2026-02-02T12:00:00+01:00", probe.Success, ""},
		{"a failure over the weekend", workdays, "2026-01-30T02:20:00+01:00", never, failed, "2026-02-01T12:00:00+01:00", probe.Failure, "has reported a failure"},
		{"no beat yet", workdays, never, never, Report{}, "2026-01-31T12:00:00+01:00", probe.Unknown, "the first one is due in"},
		{"a restart at noon", workdays, "2026-02-02T02:20:00+01:00", "2026-02-02T12:00:00+01:00", ok, "2026-02-03T03:01:00+01:00", probe.Failure, ""},
		{"a restart while it was due", workdays, "2026-02-02T02:20:00+01:00", "2026-02-03T02:30:00+01:00", ok, "2026-02-03T03:01:00+01:00", probe.Unknown, "may have missed one"},
		{"the next one after that", workdays, "2026-02-02T02:20:00+01:00", "2026-02-03T02:30:00+01:00", ok, "2026-02-04T03:01:00+01:00", probe.Failure, "2026-02-04"},
		{"a failure that may have passed", workdays, "2026-02-02T02:20:00+01:00", "2026-02-03T02:30:00+01:00", failed, "2026-02-03T02:40:00+01:00", probe.Unknown, ""},
		{"an hour that is left out", spring, "2026-03-28T02:40:00+01:00", never, ok, "2026-03-29T03:59:00+02:00", probe.Success, ""},
		{"after its grace", spring, "2026-03-28T02:40:00+01:00", never, ok, "2026-03-29T04:01:00+02:00", probe.Failure, "2026-03-29T03:00:00+02:00"},
		{"at night", byDay, "2026-01-01T23:55:01Z", never, ok, "2026-01-02T06:01:00Z", probe.Success, ""},
		{"in the morning", byDay, "2026-01-01T23:55:01Z", never, ok, "2026-01-02T06:01:02Z", probe.Failure, ""},
		{"by day", byDay, "2026-01-02T06:00:01Z", never, ok, "2026-01-02T06:06:02Z", probe.Failure, ""},
	} {
		at := func(text string) time.Time {
			v, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		now, base := at(c.now), int64(1e18)
		s := sighting{now: base, wall: now.UnixNano(), expected: 1, heard: 1, report: c.report}
		since := func(text string) int64 { return base - int64(now.Sub(at(text))) }
		if s.last = 0; c.last != never {
			s.last = since(c.last)
		} else {
			s.expected, s.heard = base-int64(time.Minute), 1
		}
		if c.heard != never {
			s.heard = since(c.heard)
		}
		if got := s.judge(c.by); got.Outcome != c.want || !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: %v %q, want %v %q", c.name, got.Outcome, got.Detail, c.want, c.detail)
		}
	}
}

func TestTheDefaultGraceFollowsTheRhythm(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   time.Duration
	}{
		{Config{Every: time.Hour}, 15 * time.Minute},
		{Config{Cron: "@daily", Timezone: "UTC"}, time.Hour},
		{Config{Cron: "*/4 * * * *", Timezone: "UTC"}, time.Minute},
		{Config{Cron: "0,10 2 * * *", Timezone: "UTC"}, 150 * time.Second},
		{Config{Cron: "@daily", Timezone: "UTC", Grace: time.Minute}, time.Minute},
	} {
		if r, err := c.config.rhythm(); err != nil || r.grace != c.want {
			t.Errorf("%+v: got %v, %v, want %v", c.config, r.grace, err, c.want)
		}
	}
}

func TestWrongRhythmsAreNamed(t *testing.T) {
	for want, c := range map[string]Config{
		"every must be set if cron is not":                    {},
		"cron cannot be combined with every":                  {Every: time.Hour, Cron: "@daily"},
		"timezone has no effect without cron":                 {Every: time.Hour, Timezone: "UTC"},
		"cron has 4 fields; want 5":                           {Cron: "0 2 * *"},
		`timezone is "Europe/Wien", a time zone unknown`:      {Cron: "@daily", Timezone: "Europe/Wien"},
		"cron never matches: there is no such day":            {Cron: "0 0 31 2 *"},
		`timezone is "../../etc/passwd", a time zone unknown`: {Cron: "@daily", Timezone: "../../etc/passwd"},
	} {
		c.Token = testToken
		_, err := NewRegistry().New(c)
		if wrong, ok := errors.AsType[*probe.FieldError](err); !ok || !strings.HasPrefix(wrong.Error(), want) {
			t.Errorf("%+v: got %v, want %s", c, err, want)
		}
	}
}

// The saved beat of a daily job survives a restart of the engine, as with every.
func TestTheLastBeatOfACalendarIsRestored(t *testing.T) {
	for schedule, want := range map[string]probe.Outcome{"0 2 * * *": probe.Success, "* * * * *": probe.Unknown} {
		r := NewRegistry()
		h, err := r.New(Config{Cron: schedule, Timezone: "UTC", Grace: time.Hour, Token: testToken})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-time.Minute).UnixNano()
		text, _ := json.Marshal(saved{At: at, Status: OK})
		if err := r.Restore("job", text, 0); err != nil {
			t.Fatal(err)
		}
		r.Apply(probe.Set{{Target: "job", Kind: probe.Readiness}: {Handler: h}})
		target := probe.Target{Name: "job", Since: time.Now().Add(-time.Hour)}
		if got := h.Probe(t.Context(), target); got.Outcome != want {
			t.Errorf("%s: %+v", schedule, got)
		}
	}
}
