package cron

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/tests/tier"
)

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	in, err := time.LoadLocation(name)
	if err != nil {
		t.Skip("this machine has no time zones: ", err)
	}
	return in
}

// at parses a local time of a zone, "2026-03-29 01:30", with its offset if it is ambiguous.
func at(t *testing.T, text string, in *time.Location) time.Time {
	t.Helper()
	layout := "2006-01-02 15:04"
	if strings.Contains(text, "+") {
		layout += " -0700"
	}
	v, err := time.ParseInLocation(layout, text, in)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestNextIsWhatCrontabSays(t *testing.T) {
	for _, c := range []struct{ schedule, after, want string }{
		{"0 3 * * 0", "2026-01-31 12:00", "2026-02-01 03:00"},
		{"0 3 * * 7", "2026-02-01 03:00", "2026-02-08 03:00"},
		{"0 3 * * SUN", "2026-02-01 02:59", "2026-02-01 03:00"},
		{"*/15 * * * *", "2026-01-31 23:50", "2026-02-01 00:00"},
		{"5-20/15 8-10/2 * * *", "2026-01-01 08:20", "2026-01-01 10:05"},
		{"0 0 29 2 *", "2026-01-01 00:00", "2028-02-29 00:00"},
		{"0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"},
		{"0 0 13 * fri", "2026-02-13 00:00", "2026-02-20 00:00"}, // either day
		{"0 0 13 * *", "2026-02-13 00:00", "2026-03-13 00:00"},
		{"0 0 */2 * mon", "2026-02-01 00:00", "2026-02-09 00:00"}, // like Vixie cron: both must match, after *
		{"0 12 1 jan,jul *", "2026-01-01 12:00", "2026-07-01 12:00"},
		{"@monthly", "2026-01-31 12:00", "2026-02-01 00:00"},
		{"0 0 31 2 *", "2026-01-01 00:00", "never"},
	} {
		s, err := Parse(c.schedule)
		if err != nil {
			t.Errorf("%q: %v", c.schedule, err)
			continue
		}
		got := "never"
		if next, ok := s.Next(at(t, c.after, time.UTC), time.UTC); ok {
			got = next.Format("2006-01-02 15:04")
		}
		if got != c.want {
			t.Errorf("%q after %s is %s, want %s", c.schedule, c.after, got, c.want)
		}
	}
}

func TestWrongSchedulesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "has 0 fields; want 5",
		"0 3 * *":                "has 4 fields",
		"0 0 3 * * 0":            "has 6 fields",
		"60 3 * * *":             `has the minute "60", which must contain numbers from 0 to 59`,
		"0 24 * * *":             `has the hour "24", which must contain numbers from 0 to 23`,
		"0 3 0 * *":              `has the day of the month "0", which must contain numbers from 1 to 31`,
		"0 3 * 13 *":             `has the month "13"`,
		"0 3 * * 8":              `has the day of the week "8"`,
		"0 3 * * mon-":           "must contain numbers",
		"0 3 * * fri-mon":        "ends before it begins",
		"0 3 * tuesday *":        "must contain numbers",
		"*/0 * * * *":            "the step",
		"*/x * * * *":            "the step",
		"5/15 * * * *":           "has a step without a range: write 5-59/15",
		"1,,2 * * * *":           "must contain numbers",
		"+1 * * * *":             "must contain numbers",
		"-1 * * * *":             "must contain numbers",
		"@fortnightly":           "is not known",
		"99999999999999 * * * *": "must contain numbers",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %s", text, err, want)
		}
	}
}

// When the clock is set forward, a begin at a skipped time occurs at once; when it is set back, a begin at a repeated
// time occurs once. A schedule that follows the clock does neither.
func TestSummerTime(t *testing.T) {
	vienna, lordHowe := location(t, "Europe/Vienna"), location(t, "Australia/Lord_Howe")
	for _, c := range []struct {
		in                    *time.Location
		schedule, after, want string
	}{
		{vienna, "30 2 * * *", "2026-03-28 12:00", "2026-03-29 03:00 +0200"},
		{vienna, "30 2 * * *", "2026-03-29 03:00", "2026-03-30 02:30 +0200"},
		{vienna, "*/30 * * * *", "2026-03-29 01:30", "2026-03-29 03:00 +0200"},
		{vienna, "*/30 * * * *", "2026-03-29 03:00", "2026-03-29 03:30 +0200"},
		{vienna, "45 * * * *", "2026-03-29 01:50", "2026-03-29 03:45 +0200"},
		{vienna, "*/50 2 * * *", "2026-03-28 12:00", "2026-03-30 02:00 +0200"},
		{vienna, "0 3 * * 0", "2026-03-29 01:59", "2026-03-29 03:00 +0200"},
		{vienna, "30 2 * * *", "2026-10-24 12:00", "2026-10-25 02:30 +0200"},
		{vienna, "30 2 * * *", "2026-10-25 02:30 +0200", "2026-10-26 02:30 +0100"},
		{vienna, "30 2 * * *", "2026-10-25 02:30 +0100", "2026-10-26 02:30 +0100"},
		{vienna, "0 * * * *", "2026-10-25 02:00 +0200", "2026-10-25 02:00 +0100"},
		{vienna, "@hourly", "2026-10-25 01:00", "2026-10-25 02:00 +0200"},
		{vienna, "*/15 * * * *", "2026-10-25 02:45 +0200", "2026-10-25 02:00 +0100"},
		{vienna, "5 */2 * * *", "2026-10-25 02:05 +0200", "2026-10-25 02:05 +0100"},
		{vienna, "* 2 * * *", "2026-10-25 02:59 +0200", "2026-10-25 02:00 +0100"},
		{vienna, "* 2 * * *", "2026-10-25 02:59 +0100", "2026-10-26 02:00 +0100"},
		{vienna, "15,45 1-3 * * *", "2026-10-25 02:45 +0200", "2026-10-25 03:15 +0100"},
		{lordHowe, "15 2 * * *", "2026-10-03 12:00", "2026-10-04 02:30 +1100"}, // set by half an hour
		{lordHowe, "45 1 * * *", "2026-04-04 12:00", "2026-04-05 01:45 +1100"},
	} {
		s, err := Parse(c.schedule)
		if err != nil {
			t.Fatal(err)
		}
		next, ok := s.Next(at(t, c.after, c.in), c.in)
		if got := next.Format("2006-01-02 15:04 -0700"); !ok || got != c.want {
			t.Errorf("%v: %q after %s is %s, want %s", c.in, c.schedule, c.after, got, c.want)
		}
	}
}

// shows returns the local time in a zone, expressed in UTC.
func shows(t time.Time, in *time.Location) time.Time {
	_, seconds := t.In(in).Zone()
	return t.UTC().Add(time.Duration(seconds) * time.Second)
}

// matches reports whether a local time matches the schedule, as specified by crontab(5).
func (s Schedule) matches(shown time.Time) bool {
	return s.minutes>>shown.Minute()&1 != 0 && s.hours>>shown.Hour()&1 != 0 && s.hasDay(shown)
}

// begins returns the times between from and to at which something begins, by checking the local clock minute by minute:
// a time begins when the clock shows it or a later time for the first time, or whenever the clock shows it.
func (s Schedule) begins(from, to time.Time, in *time.Location) (all []time.Time) {
	const earlier = 30 * time.Hour // before from, for times shown before the clock was set back
	at := from.Add(-earlier).Truncate(time.Minute)
	shown := shows(at, in) // the latest time shown
	for ; at.Before(to); at = at.Add(time.Minute) {
		matched := false
		for now := shows(at, in); shown.Before(now); {
			shown = shown.Add(time.Minute)
			matched = matched || s.matches(shown)
		}
		if s.follows {
			matched = s.matches(shows(at, in))
		}
		if matched && at.After(from) {
			all = append(all, at)
		}
	}
	return all
}

// The clocks of these zones are set on these days: by an hour or half an hour, at midnight, by two hours, and by a
// whole day.
var clockChanges = []struct{ zone, day string }{
	{"Europe/Vienna", "2026-03-29"}, {"Europe/Vienna", "2026-10-25"},
	{"Australia/Lord_Howe", "2026-10-04"}, {"Australia/Lord_Howe", "2026-04-05"},
	{"America/St_Johns", "2006-10-29"}, {"America/St_Johns", "2007-03-11"}, // a minute after midnight
	{"America/Sao_Paulo", "2018-11-04"}, {"America/Sao_Paulo", "2018-02-18"},
	{"America/Havana", "2026-03-08"}, {"America/Havana", "2026-11-01"},
	{"Antarctica/Troll", "2026-03-29"}, {"Antarctica/Troll", "2026-10-25"},
	{"Pacific/Apia", "2011-12-30"},
	{"Asia/Kathmandu", "2026-03-29"}, {"UTC", "2026-12-31"}, // not set
}

// Next agrees with a check of the clock at each minute, also when the clock is set.
func TestNextIsTheFirstMinuteThatTheClocksShow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range clockChanges {
		in := location(t, c.zone)
		day := at(t, c.day+" 12:00", time.UTC)
		from, to := day.Add(-48*time.Hour), day.Add(48*time.Hour)
		for range 30 {
			text := []string{
				fmt.Sprintf("%d %d * * *", r.IntN(60), r.IntN(5)),
				fmt.Sprintf("%d,%d %d-%d * * %d", r.IntN(60), r.IntN(60), r.IntN(4), 4+r.IntN(20), r.IntN(8)),
				fmt.Sprintf("*/%d */%d * * *", 1+r.IntN(59), 1+r.IntN(12)),
				fmt.Sprintf("%d * * * %d", r.IntN(60), r.IntN(8)),
				fmt.Sprintf("*/%d %d-3 * * *", 1+r.IntN(59), r.IntN(4)),
				fmt.Sprintf("%d 0-3 %d * %d", r.IntN(60), day.Day(), r.IntN(8)),
			}[r.IntN(6)]
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			now := from
			for _, want := range s.begins(from, to, in) {
				next, ok := s.Next(now, in)
				if !ok || !next.Equal(want) {
					t.Fatalf("%s: %q after %v is %v, want %v", c.zone, text, now.In(in), next, want.In(in))
				}
				now = next
			}
			if next, ok := s.Next(now, in); ok && next.Before(to) {
				t.Fatalf("%s: %q after %v is %v, which is too many", c.zone, text, now.In(in), next)
			}
		}
	}
}

// Overlapping windows form one window, which is the same at each time within it, and nothing begins between two
// windows.
func TestWindowsAreTheUnionOfAllThatBegin(t *testing.T) {
	tier.Slow(t)
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range clockChanges {
		in := location(t, c.zone)
		day := at(t, c.day+" 12:00", time.UTC)
		from, to := day.Add(-48*time.Hour), day.Add(48*time.Hour)
		for range 20 {
			text := fmt.Sprintf("%d,%d %d,%d * * *", r.IntN(60), r.IntN(60), r.IntN(24), r.IntN(24))
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			w := Windows{s, time.Duration(1+r.IntN(150)) * time.Minute, in}
			begins := s.begins(from.Add(-24*time.Hour), to, in)
			for now := from; now.Before(to.Add(-24 * time.Hour)); now = now.Add(time.Duration(1+r.IntN(40)) * time.Minute) {
				want := false
				for _, begin := range begins {
					want = want || Window{begin, begin.Add(w.Duration)}.Contains(now)
				}
				window, ok := w.At(now)
				if ok && window.Contains(now) != want {
					t.Fatalf("%s: %q for %v at %v: %v, want in it %v", c.zone, text, w.Duration, now.In(in), window, want)
				}
				for _, other := range []time.Time{window.From, window.To.Add(-1)} {
					if same, _ := w.At(other); want && same != window {
						t.Fatalf("%s: %q for %v at %v: %v, and %v at %v", c.zone, text, w.Duration, now.In(in), window, same, other)
					}
				}
			}
		}
	}
}

func TestWindows(t *testing.T) {
	vienna := location(t, "Europe/Vienna")
	for _, c := range []struct {
		schedule string
		duration time.Duration
		at, want string
	}{
		{"0 3 * * 0", time.Hour, "2026-02-01 02:59", "02-01 03:00 to 02-01 04:00"},
		{"0 3 * * 0", time.Hour, "2026-02-01 03:00", "02-01 03:00 to 02-01 04:00, in it"},
		{"0 3 * * 0", time.Hour, "2026-02-01 03:59", "02-01 03:00 to 02-01 04:00, in it"},
		{"0 3 * * 0", time.Hour, "2026-02-01 04:00", "02-08 03:00 to 02-08 04:00"},
		{"0 23 * * *", 2 * time.Hour, "2026-02-02 00:30", "02-01 23:00 to 02-02 01:00, in it"},
		{"0,30 3 * * *", 45 * time.Minute, "2026-02-01 03:10", "02-01 03:00 to 02-01 04:15, in it"}, // joined
		{"0,30 3 * * *", 45 * time.Minute, "2026-02-01 04:10", "02-01 03:00 to 02-01 04:15, in it"},
		{"0,30 3 * * *", 30 * time.Minute, "2026-02-01 03:10", "02-01 03:00 to 02-01 04:00, in it"},
		{"0 1 * * *", 3 * time.Hour, "2026-03-29 04:30", "03-29 01:00 to 03-29 05:00, in it"}, // three hours elapse
		{"0 1 * * *", 3 * time.Hour, "2026-10-25 03:00", "10-26 01:00 to 10-26 04:00"},
		{"50 * * * *", 20 * time.Minute, "2026-10-25 02:55 +0100", "10-25 02:50 to 10-25 03:10, in it"}, // the second time
		{"*/30 1-3 * * *", 30 * time.Minute, "2026-10-25 02:10 +0100", "10-25 01:00 to 10-25 04:00, in it"},
	} {
		s, err := Parse(c.schedule)
		if err != nil {
			t.Fatal(err)
		}
		now := at(t, c.at, vienna)
		w, ok := Windows{s, c.duration, vienna}.At(now)
		got := w.From.In(vienna).Format("01-02 15:04") + " to " + w.To.In(vienna).Format("01-02 15:04")
		if w.Contains(now) {
			got += ", in it"
		}
		if !ok || got != c.want {
			t.Errorf("%q for %v at %s is %s, want %s", c.schedule, c.duration, c.at, got, c.want)
		}
	}
}

func TestFaultsOfWindowsAreRecognized(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, durations := range map[string]map[time.Duration]string{
		"* * 1 * *":    {time.Minute: ""},
		"* * 1-2 * *":  {time.Minute: "more than 1500 maintenances in a row"},
		"* * * * *":    {time.Minute: "more than 1500 maintenances in a row", time.Hour: "more than 31 days", 7 * 24 * time.Hour: "more than 31 days"},
		"*/30 * * * *": {time.Hour: "more than 31 days"},
		"0 0 * * *":    {23 * time.Hour: "", 24 * time.Hour: "more than 31 days", 25 * time.Hour: "more than 31 days"},
		"0 3 * * 0":    {time.Hour: "", 7 * 24 * time.Hour: "more than 31 days"},
		"0 0 31 2 *":   {time.Hour: "never begins"},
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for d, want := range durations {
			got, ofDuration := (Windows{s, d, time.UTC}).Fault(from)
			if (got != "") != (want != "") || !strings.Contains(got, want) || ofDuration != (want != "" && want != "never begins") {
				t.Errorf("%q for %v has the fault %q, want %q", text, d, got, want)
			}
		}
	}
}

func TestWhatIsJoinedIsBounded(t *testing.T) {
	s, err := Parse("* * * * *")
	if err != nil {
		t.Fatal(err)
	}
	if _, joined := (Windows{s, time.Minute, time.UTC}).join(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); joined != maxJoined+1 {
		t.Errorf("%d windows were joined", joined)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"0 3 * * 0", "*/15 8-18/2 1,15 jan-mar mon", "@daily", "5/15 * * * *", "60 * * * *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		after := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if next, ok := s.Next(after, time.UTC); ok && (!next.After(after) || next.Second() != 0) {
			t.Errorf("%q after %v is %v", text, after, next)
		}
	})
}
