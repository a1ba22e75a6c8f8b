package beatprobe

import (
	"cmp"
	"time"

	"github.com/sonde-probe/sonde/internal/cron"
	"github.com/sonde-probe/sonde/probe"
)

// rhythm defines when beats are due.
type rhythm struct {
	every, grace time.Duration  // every is the shortest time between two due beats
	schedule     cron.Schedule  // of cron
	in           *time.Location // of cron; nil without cron
}

// maxDefaultGrace is the longest default of Config.Grace with a cron.
const maxDefaultGrace = time.Hour

// rhythm returns the rhythm that the configuration describes. An error is a *probe.FieldError.
func (c Config) rhythm() (r rhythm, err error) {
	switch {
	case c.Every != 0 && c.Cron != "":
		return r, probe.FieldErrorf("cron", "cannot be combined with every: set only one of them")
	case c.Cron == "" && c.Timezone != "":
		return r, probe.FieldErrorf("timezone", "has no effect without cron")
	case c.Cron == "" && c.Every == 0:
		return r, &probe.FieldError{Field: "every", Problem: "must be set if cron is not", Hint: `write every = "24h", or cron = "0 2 * * *"`}
	case c.Cron == "":
		return rhythm{every: c.Every, grace: cmp.Or(c.Grace, c.Every/4)}, nil
	}
	if r.schedule, err = cron.Parse(c.Cron); err != nil {
		return r, &probe.FieldError{Field: "cron", Problem: err.Error(), Hint: `on work days at 2 o'clock is "0 2 * * 1-5"`}
	}
	if r.in, err = cron.Location(c.Timezone); err != nil {
		return r, &probe.FieldError{Field: "timezone", Problem: err.Error(), Hint: cron.LocationHint}
	}
	if r.every = r.shortest(); r.every == 0 {
		return r, probe.FieldErrorf("cron", "never matches: there is no such day")
	}
	r.grace = cmp.Or(c.Grace, min(r.every/4, maxDefaultGrace))
	return r, nil
}

// shortest returns the shortest time between two due beats, looking at least a year ahead unless that takes more than 100 beats; 0
// if no beat is ever due.
func (r rhythm) shortest() (least time.Duration) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const year, most = 366 * 24 * time.Hour, 100
	last, ok := r.schedule.Next(begin, r.in)
	for n := 0; ok && n < most && (least == 0 || last.Sub(begin) < year); n++ {
		next, again := r.schedule.Next(last, r.in)
		if again && (least == 0 || next.Sub(last) < least) {
			least = next.Sub(last)
		}
		last, ok = next, again
	}
	return least
}

// due returns when the next beat after from is due, by the clock of the sighting, and the earliest time at which it may come.
// IsBeat says that from is the time of a beat: with cron, a beat may have come slightly early by the clock of its sender.
func (r rhythm) due(s sighting, from int64, isBeat bool) (due, earliest int64) {
	if r.in == nil {
		return from + int64(r.every), from + int64(r.every-r.grace)
	}
	if isBeat {
		from += int64(margin)
	}
	next, ok := r.schedule.Next(s.time(from), r.in)
	if !ok { // not within the years that Next searches
		next = s.time(s.now).Add(probe.MaxDuration)
	}
	due = s.now + int64(next.Sub(s.time(s.now)))
	return due, due
}

// expected describes for people when the missing beat was due.
func (r rhythm) expected(s sighting, due int64) string {
	if r.in == nil {
		return "one is expected every " + probe.Brief(r.every) + ", " + probe.Brief(r.grace) + " later at most"
	}
	return "one was due at " + s.time(due).In(r.in).Format(time.RFC3339) + ", " + probe.Brief(r.grace) + " later at most"
}
