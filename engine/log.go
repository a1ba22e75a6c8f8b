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

const (
	// firstVerdictPeriod is the time for which first verdicts are counted together.
	firstVerdictPeriod = 10 * time.Second

	// maxFirstVerdicts is how many passing probes, and how many failing ones, get a line
	// for their first verdict in a period.
	maxFirstVerdicts = 100
)

// firstVerdicts limits the log lines about first verdicts, of which very many come at
// once after a start: those beyond maxFirstVerdicts are counted in one line.
// scheduler.mu guards it.
type firstVerdicts struct {
	end     int64 // of the period
	logged  verdictCounts
	omitted verdictCounts
}

// verdictCounts are numbers of probes by verdict.
type verdictCounts [probe.Failing + 1]int

// allow counts a first verdict, and reports whether it gets a line of its own.
func (f *firstVerdicts) allow(v probe.Verdict, now int64) bool {
	if now >= f.end {
		f.end, f.logged = now+int64(firstVerdictPeriod), verdictCounts{}
	}
	if f.logged[v] == maxFirstVerdicts {
		f.omitted[v]++
		return false
	}
	f.logged[v]++
	return true
}

// next returns when check has to be called; never if all verdicts had a line.
func (f *firstVerdicts) next() int64 {
	if f.omitted == (verdictCounts{}) {
		return never
	}
	return f.end
}

// check returns the line about the verdicts without one when their period is over,
// otherwise nil.
func (f *firstVerdicts) check(now int64) logLine {
	if f.next() > now {
		return nil
	}
	line := firstVerdictsLine(f.omitted)
	f.omitted = verdictCounts{}
	return line
}

// firstVerdictsLine counts the first verdicts that had no line.
type firstVerdictsLine verdictCounts

func (l firstVerdictsLine) write(to *slog.Logger) {
	level := slog.LevelInfo
	if l[probe.Failing] > 0 {
		level = slog.LevelWarn
	}
	to.Log(context.Background(), level, "more first verdicts, not logged one by one", "passing", l[probe.Passing], "failing", l[probe.Failing])
}
