// Package cron reads times as cron writes them, and finds the windows of time that begin then. It has
// no clock. docs/decisions/0071-reasons-to-withhold-a-restart.md says why it is not a library.
package cron

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule are the minutes of a calendar at which something begins. The zero Schedule has none.
type Schedule struct {
	minutes, hours, days, months, weekdays uint64 // the bit n is set for the number n

	// eitherDay: both days and weekdays are restricted, and a day has to be one of either.
	eitherDay bool

	// follows: the minute or the hour begins with *. What is asked for goes on by the clocks, also when they are set:
	// they may show a time twice, or not at all.
	follows bool
}

// field is one of the five fields of a schedule.
type field struct {
	name     string
	min, max int
	names    []string // of the numbers from min; nil if they have none
}

var fields = [5]field{
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of the month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of the week", max: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// shorthands are schedules with a name.
var shorthands = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// Parse reads a schedule as crontab(5) has it: five fields, which are minute, hour, day of the month,
// month, and day of the week, 0 or 7 for Sunday; each with numbers, names, ranges (1-5), lists (1,3) and
// steps (*/15, 8-18/2); or @daily and the like. If both the day of the month and that of the week are
// restricted, a day that fulfils one of them counts. An error says which field is wrong.
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
		return Schedule{}, fmt.Errorf("has %d fields instead of 5: minute, hour, day of the month, month, day of the week", len(parts))
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

// parse reads a field: a list of ranges.
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
				return 0, fmt.Errorf("has a step and no range: write %s-%d/%s", span, f.max, step)
			}
		}
		for n := low; n <= high; n += by {
			set |= 1 << n
		}
	}
	return set, nil
}

// span reads "*", "5" or "1-5".
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
		return 0, fmt.Errorf("must have numbers from %d to %d", f.min, f.max)
	}
	return n, nil
}

// maxDays is how many days are looked at: February 29 may be eight years away.
const maxDays = 8*366 + 2

// Next returns the first time after another one at which something begins by the clocks of a time
// zone, and whether there is one. As cron(8) has it, what begins at a certain hour and minute begins once: a time that the clocks
// leave out, when summer time begins, is the moment at which they are set; one that they repeat, when it ends, is the first of
// both. If the minute or the hour begins with *, it begins each time that the clocks show, and none that they leave out.
func (s Schedule) Next(after time.Time, in *time.Location) (time.Time, bool) {
	if s.follows {
		return s.nextShown(after, in)
	}
	_, seconds := after.In(in).Zone()
	from := after.UTC().Add(time.Duration(seconds) * time.Second) // as the clocks show it
	for shown := range s.times(from) {
		if at := instant(shown, in); at.After(after) {
			return at.In(in), true
		}
	}
	return time.Time{}, false
}

// nextShown is Next for a schedule that follows the clocks, which are set at the end of each span of the same offset.
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

// times returns the times that are not before another one, as clocks show them, for maxDays.
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

// minuteFrom returns the first minute of a day that is not before a time of that day or of one before.
func minuteFrom(date, from time.Time) int {
	return max(int((from.Sub(date)+time.Minute-1)/time.Minute), 0)
}

// hasDay reports whether something may begin on a day.
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

// instant returns when the clocks of a time zone show what those of UTC show at a time.
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
	_, set := first.In(in).ZoneBounds() // the clocks are set in between
	return set
}
