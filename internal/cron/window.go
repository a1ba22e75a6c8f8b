package cron

import (
	"fmt"
	"time"
)

// Windows are spans of time that begin by a Schedule.
type Windows struct {
	Begin    Schedule
	Duration time.Duration // elapsed time of each, regardless of clock changes
	In       *time.Location
}

// Window is a span of time.
type Window struct{ From, To time.Time }

// Contains reports whether a time is in the window, which includes From but not To.
func (w Window) Contains(t time.Time) bool { return !t.Before(w.From) && t.Before(w.To) }

// maxWindow is the maximum length of a window that results from overlapping or adjacent windows.
const maxWindow = 31 * 24 * time.Hour

// maxJoined is the maximum number of overlapping or adjacent windows that are joined: slightly more than one per minute
// for a day. It limits the cost of At.
const maxJoined = 1500

// At returns the window that contains a time, or else the next one, and whether there is one. Overlapping or adjacent
// windows are joined; the result is the same for each time in the joined window. A joined window is cut off if it
// becomes longer than maxWindow or consists of more than maxJoined.
func (w Windows) At(t time.Time) (Window, bool) {
	at, joined := w.join(t)
	return at, joined > 0
}

// join is At, but returns how many windows were joined; 0 if there is none.
func (w Windows) join(t time.Time) (at Window, joined int) {
	begin, ok := w.Begin.Next(t.Add(-w.Duration), w.In)
	if !ok {
		return Window{}, 0
	}
	at = Window{begin, begin.Add(w.Duration)}
	for joined = 1; joined <= maxJoined && at.To.Sub(at.From) <= maxWindow; joined++ {
		before, _ := w.Begin.Next(at.From.Add(-w.Duration-1), w.In)
		if !before.Before(at.From) {
			break
		}
		at.From = before
	}
	for ; joined <= maxJoined && at.To.Sub(at.From) <= maxWindow; joined++ {
		if begin, ok = w.Begin.Next(begin, w.In); !ok || begin.After(at.To) {
			break
		}
		at.To = begin.Add(w.Duration)
	}
	return at, joined
}

// Fault returns the problem of the first window after a time, or "". The text follows the name of the schedule in a
// sentence or, if ofDuration, the name of the duration.
func (w Windows) Fault(after time.Time) (problem string, ofDuration bool) {
	switch at, joined := w.join(after); {
	case joined == 0:
		return "matches no day of any year: the maintenance never begins", false
	case at.To.Sub(at.From) > maxWindow:
		return fmt.Sprintf("is %v, which leaves no gap between maintenances: the targets would be under maintenance for more than %v days in a row", w.Duration, maxWindow.Hours()/24), true
	case joined > maxJoined:
		return fmt.Sprintf("is %v, which leaves no gap between more than %d maintenances in a row: set cron to the start of the first one, and duration to their total time", w.Duration, maxJoined), true
	}
	return "", false
}
