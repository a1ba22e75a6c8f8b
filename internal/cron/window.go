package cron

import "time"

// Windows are spans of time that begin by a Schedule.
type Windows struct {
	Begin    Schedule
	Duration time.Duration // of each, as it passes: not by the clocks
	In       *time.Location
}

// Window is a span of time.
type Window struct{ From, To time.Time }

// Contains reports whether a time is in the window: From is, To is not.
func (w Window) Contains(t time.Time) bool { return !t.Before(w.From) && t.Before(w.To) }

// MaxWindow is how long a window may become when others overlap or touch it.
const MaxWindow = 31 * 24 * time.Hour

// At returns the window in which a time is, or else the next one, and whether there is one. Windows
// that overlap or touch each other are one, whatever time in it was asked for; one that becomes
// longer than MaxWindow is cut off.
func (w Windows) At(t time.Time) (Window, bool) {
	begin, ok := w.Begin.Next(t.Add(-w.Duration), w.In)
	if !ok {
		return Window{}, false
	}
	at := Window{begin, begin.Add(w.Duration)}
	for at.To.Sub(at.From) <= MaxWindow {
		before, _ := w.Begin.Next(at.From.Add(-w.Duration-1), w.In)
		if !before.Before(at.From) {
			break
		}
		at.From = before
	}
	for at.To.Sub(at.From) <= MaxWindow {
		if begin, ok = w.Begin.Next(begin, w.In); !ok || begin.After(at.To) {
			break
		}
		at.To = begin.Add(w.Duration)
	}
	return at, true
}

// IsEndless reports whether the first window after a time is longer than MaxWindow.
func (w Windows) IsEndless(after time.Time) bool {
	at, ok := w.At(after)
	return ok && at.To.Sub(at.From) > MaxWindow
}
