// Package cron parses schedules in the format of cron, and finds the windows of time that begin by them. It has no
// clock. docs/decisions/0071-reasons-to-withhold-a-restart.md explains why it is not a library.
package cron

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule is a set of minutes in the calendar at which something begins. The zero Schedule is empty.
type Schedule struct {
	minutes, hours, days, months, weekdays uint64 // the bit n is set for the number n

	// eitherDay: both days and weekdays are restricted, and a day matches if it is in either.
	eitherDay bool

	// follows: the minute or the hour field begins with *. The schedule then follows the local clock even when it is
	// set: a time may occur twice, or not at all.
	follows bool
}

// field describes one of the five fields of a schedule.
type field struct {
	name     string
	min, max int
	names    []string // names of the numbers from min; nil if they have none
}

var fields = [5]field{
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of the month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of the week", max: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// shorthands maps names to schedules.
var shorthands = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// Parse parses a schedule as in crontab(5): either five fields, which are minute, hour, day of the month, month, and
// day of the week, 0 or 7 for Sunday, each with numbers, names, ranges (1-5), lists (1,3) and steps (*/15, 8-18/2); or
// @daily and the like. If both the day of the month and the day of the week are restricted, a day matches if either
// does. An error names the invalid field.
func Parse(text string) (Schedule, error) {
	if strings.HasPrefix(text, "@") {
		known, ok := shorthands[text]
		if !ok {
			return Schedule{}, fmt.Errorf("%.80q is not known: write five fields, or @hourly, @daily, @weekly, @monthly or @yearly", text)
		}
		text = known
	}
	parts := strings.Fields(text)
	if len(parts) != len(fields) {
		return Schedule{}, fmt.Errorf("has %d fields; want 5: minute, hour, day of the month, month, day of the week", len(parts))
	}
	var sets [len(fields)]uint64
	for i, part := range parts {
		var err error
		if sets[i], err = fields[i].parse(part); err != nil {
			return Schedule{}, fmt.Errorf("has the %s %.80q, which %w", fields[i].name, part, err)
		}
	}
	const sunday = 1<<7 | 1
	if sets[4]&sunday != 0 {
		sets[4] |= sunday
	}
	restricted := func(part string) bool { return !strings.HasPrefix(part, "*") }
	return Schedule{
		minutes: sets[0], hours: sets[1], days: sets[2], months: sets[3], weekdays: sets[4],
		eitherDay: restricted(parts[2]) && restricted(parts[4]),
		follows:   !restricted(parts[0]) || !restricted(parts[1]),
	}, nil
}

// parse parses a field: a list of ranges.
func (f field) parse(text string) (set uint64, err error) {
	for one := range strings.SplitSeq(text, ",") {
		span, step, stepped := strings.Cut(one, "/")
		low, high, err := f.span(span)
		if err != nil {
			return 0, err
		}
		by := 1
		if stepped {
			if by, err = strconv.Atoi(step); err != nil || by < 1 || by > f.max {
				return 0, fmt.Errorf("has the step %.20q; it must be from 1 to %d", step, f.max)
			}
			if low == high && span != "*" {
				return 0, fmt.Errorf("has a step without a range: write %s-%d/%s", span, f.max, step)
			}
		}
		for n := low; n <= high; n += by {
			set |= 1 << n
		}
	}
	return set, nil
}

// span parses "*", "5" or "1-5".
func (f field) span(text string) (low, high int, err error) {
	if text == "*" {
		return f.min, f.max, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if low, err = f.number(from); err != nil {
		return 0, 0, err
	}
	if high = low; isRange {
		if high, err = f.number(to); err != nil {
			return 0, 0, err
		}
	}
	if high < low {
		return 0, 0, fmt.Errorf("ends before it begins")
	}
	return low, high, nil
}

func (f field) number(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.min + i, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max || text[0] == '+' || text[0] == '-' {
		return 0, fmt.Errorf("must contain numbers from %d to %d", f.min, f.max)
	}
	return n, nil
}

// maxDays is the number of days that are searched: February 29 may be eight years away.
const maxDays = 8*366 + 2

// Next returns the first time after the given one at which something begins in a time zone, and whether there is one.
// As in cron(8), a begin at a fixed hour and minute occurs once per day: if daylight saving time skips it, it occurs
// when the clock is set; if it is repeated, it occurs the first time. If the minute or the hour field begins with *, it
// occurs each time that the clock shows it, and not at all if it is skipped.
func (s Schedule) Next(after time.Time, in *time.Location) (time.Time, bool) {
	if s.follows {
		return s.nextShown(after, in)
	}
	_, seconds := after.In(in).Zone()
	from := after.UTC().Add(time.Duration(seconds) * time.Second) // the local time, expressed in UTC
	for shown := range s.times(from) {
		if at := instant(shown, in); at.After(after) {
			return at.In(in), true
		}
	}
	return time.Time{}, false
}

// nextShown is Next for a schedule with follows. It searches each period of constant UTC offset separately.
func (s Schedule) nextShown(after time.Time, in *time.Location) (time.Time, bool) {
	for begin, last := after.Add(1), after.Add(maxDays*24*time.Hour); begin.Before(last); {
		_, seconds := begin.In(in).Zone()
		offset := time.Duration(seconds) * time.Second
		_, end := begin.In(in).ZoneBounds()
		for shown := range s.times(begin.UTC().Add(offset)) {
			if at := shown.Add(-offset); end.IsZero() || at.Before(end) {
				return at.In(in), true
			}
			break
		}
		if end.IsZero() {
			break
		}
		begin = end
	}
	return time.Time{}, false
}

// times yields the matching local times from the given one on, for maxDays.
func (s Schedule) times(from time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		for i := range maxDays {
			date := time.Date(from.Year(), from.Month(), from.Day()+i, 0, 0, 0, 0, time.UTC)
			if !s.hasDay(date) {
				continue
			}
			for minute := minuteFrom(date, from); minute < 24*60; minute++ {
				if s.hours>>(minute/60)&1 == 0 {
					minute += 59 - minute%60
				} else if s.minutes>>(minute%60)&1 != 0 && !yield(date.Add(time.Duration(minute)*time.Minute)) {
					return
				}
			}
		}
	}
}

// minuteFrom returns the first minute of a day that is not before from, which must be on that day or an earlier one.
func minuteFrom(date, from time.Time) int {
	return max(int((from.Sub(date)+time.Minute-1)/time.Minute), 0)
}

// hasDay reports whether a day matches.
func (s Schedule) hasDay(date time.Time) bool {
	if s.months>>date.Month()&1 == 0 {
		return false
	}
	day, weekday := s.days>>date.Day()&1 != 0, s.weekdays>>date.Weekday()&1 != 0
	if s.eitherDay {
		return day || weekday
	}
	return day && weekday
}

// instant returns when the local clock of a time zone shows the given time, which is expressed in UTC.
func instant(shown time.Time, in *time.Location) time.Time {
	offset := func(at time.Time) time.Duration {
		_, seconds := at.In(in).Zone()
		return time.Duration(seconds) * time.Second
	}
	before, after := offset(shown.Add(-24*time.Hour)), offset(shown.Add(24*time.Hour))
	first, last := shown.Add(-max(before, after)), shown.Add(-min(before, after))
	for _, at := range [...]time.Time{first, last} {
		if at.Add(offset(at)).Equal(shown) {
			return at
		}
	}
	_, set := first.In(in).ZoneBounds() // the time is skipped: return when the clock is set
	return set
}
