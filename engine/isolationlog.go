package engine

import (
	"context"
	"log/slog"
	"time"
)

// cutOff is from what the engine is cut off.
type cutOff uint8

const (
	fromNothing cutOff = iota
	fromNames          // and from the targets that have them
	fromAll
)

// isolationLogPeriod is the time in which at most one isolation is logged.
const isolationLogPeriod = int64(10 * time.Second)

// isolationLog says when to log that the engine is isolated, or no longer.
type isolationLog struct {
	until  [fromAll + 1]int64 // the engine is cut off from these until then
	logged cutOff             // by the last line
	quiet  int64              // no line says that it is cut off until then
	due    int64              // when check has to be called; 0 before the first isolation
}

// next returns when check has to be called; never if there is nothing to say.
func (l *isolationLog) next() int64 {
	if l.due == 0 {
		return never
	}
	return l.due
}

// at returns from what the engine is cut off.
func (l *isolationLog) at(now int64) cutOff {
	for is := fromAll; is > fromNothing; is-- {
		if now < l.until[is] {
			return is
		}
	}
	return fromNothing
}

// set sets until when the engine is cut off from names, and from all.
func (l *isolationLog) set(names, all, now int64) {
	l.until[fromNames], l.until[fromAll] = names, all
	l.plan(now)
}

// plan sets when check has to be called next.
func (l *isolationLog) plan(now int64) {
	switch is := l.at(now); {
	case is == fromNothing && l.logged == fromNothing:
		l.due = never
	case is == l.logged:
		l.due = l.until[is]
	case is == fromNothing:
		l.due = now
	default:
		l.due = max(now, l.quiet)
	}
}

// check returns the line that is due, or nil.
func (l *isolationLog) check(now int64) logLine {
	if l.next() > now {
		return nil
	}
	is := l.at(now)
	if is == l.logged || is != fromNothing && now < l.quiet {
		l.plan(now)
		return nil
	}
	if l.logged = is; is != fromNothing {
		l.quiet = now + isolationLogPeriod
	}
	l.plan(now)
	return isolationLine(is)
}

// isolationLine says from what the engine is cut off, or that it is no longer.
type isolationLine cutOff

func (l isolationLine) write(to *slog.Logger) {
	level, text := slog.LevelError, "engine isolated: no target answers; failures without an answer do not count"
	switch cutOff(l) {
	case fromNothing:
		level, text = slog.LevelInfo, "engine no longer isolated"
	case fromNames:
		text = "engine isolated: no name server answers, or no target with a name; their failures without an answer do not count"
	}
	to.Log(context.Background(), level, text)
}
