package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// logLine is a line to be written when no lock is held.
type logLine interface{ write(to *slog.Logger) }

// verdictLine says that the verdict of a probe has changed.
type verdictLine struct {
	id     probe.ID
	before probe.Verdict
	state  verdict.State
	result probe.Result
	cause  verdict.EventType
}

// newVerdictLine returns the line for a probe whose lock the caller holds.
func newVerdictLine(s *slot, before probe.Verdict, cause verdict.EventType) *verdictLine {
	l := &verdictLine{id: s.id(), before: before, state: s.state, cause: cause}
	if s.result != nil {
		l.result = *s.result
	}
	return l
}

// maxLoggedDetail bounds a log line's detail, in bytes.
const maxLoggedDetail = 512

func (l *verdictLine) write(to *slog.Logger) {
	level := slog.LevelInfo
	if l.state.Verdict == probe.Failing {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("target", l.id.Target),
		slog.String("probe", l.id.Kind.String()),
	}
	if l.id.Name != "" {
		attrs = append(attrs, slog.String("name", l.id.Name))
	}
	attrs = append(attrs,
		slog.String("instance", l.state.Instance),
		slog.String("verdict", l.state.Verdict.String()),
		slog.String("previous", l.before.String()),
	)
	if l.cause == verdict.Attempted {
		attrs = append(attrs, l.attempt()...)
	}
	to.LogAttrs(context.Background(), level, "verdict changed", attrs...)
}

// attempt returns the attributes of the attempt that changed the verdict.
func (l *verdictLine) attempt() []slog.Attr {
	attrs := []slog.Attr{slog.Duration("took", l.result.Took.Round(time.Microsecond))}
	if l.result.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(l.result.Reason)))
	}
	if l.result.Detail != "" && l.state.Verdict == probe.Failing {
		attrs = append(attrs, slog.String("detail", probe.CleanText(l.result.Detail, maxLoggedDetail)))
	}
	return attrs
}
