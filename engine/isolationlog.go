package engine

import (
	"context"
	"log/slog"
	"time"
)

// cutOff is the scope of an isolation of the engine.
type cutOff uint8

const (
	fromNothing cutOff = iota
	fromNames          // from name servers, and from targets with names
	fromAll
)

// isolationLogPeriod is the period in which at most one isolation is logged.
const isolationLogPeriod = int64(10 * time.Second)

// isolationLog determines when to log that the engine is isolated, or no longer isolated.
type isolationLog struct {
	until  [fromAll + 1]int64 // until when the engine is cut off
	logged cutOff             // by the last line
	quiet  int64              // no isolation is logged until then
}

// at returns the scope of the isolation at the time now.
func (l *isolationLog) at(now int64) cutOff {
	for is := fromAll; is > fromNothing; is-- {
		if now < l.until[is] {
			return is
		}
	}
	return fromNothing
}

// check returns the log line that is due, or nil.
func (l *isolationLog) check(now int64) logLine {
	is := l.at(now)
	if is == l.logged || is != fromNothing && now < l.quiet {
		return nil
	}
	if l.logged = is; is != fromNothing {
		l.quiet = now + isolationLogPeriod
	}
	level, text := slog.LevelError, "engine isolated: no target responds; failures without a response do not count"
	switch is {
	case fromNothing:
		level, text = slog.LevelInfo, "engine no longer isolated"
	case fromNames:
		text = "engine isolated: no name server responds, or no target probed by name; failures of such targets without a response do not count"
	}
	return func(to *slog.Logger) { to.Log(context.Background(), level, text) }
}
