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

// MaxJoined is how many windows that overlap or touch each other may be one: one that begins each
// minute for a day, with some room. It bounds how long At takes.
const MaxJoined = 1500

// At returns the window in which a time is, or else the next one, and whether there is one. Windows
// that overlap or touch each other are one, whatever time in it was asked for; one that becomes
// longer than MaxWindow, or is of more than MaxJoined, is cut off.
func (w Windows) At(t time.Time) (Window, bool) {
	at, joined := w.join(t)
	return at, joined > 0
}

// join is At, and returns how many windows were joined; 0 if there is none.
func (w Windows) join(t time.Time) (at Window, joined int) {
	begin, ok := w.Begin.Next(t.Add(-w.Duration), w.In)
	if !ok {
		return Window{}, 0
	}
	at = Window{begin, begin.Add(w.Duration)}
	for joined = 1; joined <= MaxJoined && at.To.Sub(at.From) <= MaxWindow; joined++ {
		before, _ := w.Begin.Next(at.From.Add(-w.Duration-1), w.In)
		if !before.Before(at.From) {
			break
		}
		at.From = before
	}
	for ; joined <= MaxJoined && at.To.Sub(at.From) <= MaxWindow; joined++ {
		if begin, ok = w.Begin.Next(begin, w.In); !ok || begin.After(at.To) {
			break
		}
		at.To = begin.Add(w.Duration)
	}
	return at, joined
}

// fault is what may be wrong with Windows.
type fault int

// The faults of Windows.
const (
	noFault   fault = iota
	NoWindow        // none ever begins
	Endless         // one is longer than MaxWindow
	TooJoined       // one is of more than MaxJoined
)

// Fault returns what is wrong with the first window after a time.
func (w Windows) Fault(after time.Time) fault {
	switch at, joined := w.join(after); {
	case joined == 0:
		return NoWindow
	case at.To.Sub(at.From) > MaxWindow:
		return Endless
	case joined > MaxJoined:
		return TooJoined
	}
	return noFault
}
