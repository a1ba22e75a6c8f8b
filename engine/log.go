package engine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/engine/internal/health"
	"github.com/sonde-probe/sonde/probe"
)

// logLine writes a log line. It is called without locks.
type logLine func(to *slog.Logger)

// probeAttrs returns the attributes that identify a probe and its instance, with capacity for more.
func probeAttrs(id probe.ID, instance string) []slog.Attr {
	attrs := append(make([]slog.Attr, 0, 12), slog.String("target", id.Target), slog.String("probe", id.Kind.String()))
	if id.Name != "" {
		attrs = append(attrs, slog.String("name", id.Name))
	}
	return append(attrs, slog.String("instance", instance))
}

// maxLoggedDetail bounds the detail in a log line, in bytes.
const maxLoggedDetail = 512

// resultAttrs returns the attributes of the result of an attempt.
func resultAttrs(res *probe.Result, detailed bool) []slog.Attr {
	attrs := []slog.Attr{slog.Duration("took", res.Took.Round(time.Microsecond))}
	if res.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(res.Reason)))
	}
	if res.Detail != "" && detailed {
		attrs = append(attrs, slog.String("detail", probe.CleanText(res.Detail, maxLoggedDetail)))
	}
	return attrs
}

// newVerdictLine returns the line for a change of a probe's verdict, or for the attempts that confirm the initial one. res is the
// result of the last attempt, or nil if the instance changed the verdict.
func newVerdictLine(s *slot, f *folded, res *probe.Result) logLine {
	id, state, before, isFirst := s.id(), f.state, f.previous.Verdict, f.first
	var result probe.Result
	attempts, why := int32(0), probe.Reason("instance") // attempts that decided, 0 by "evidence"; reason of the instance
	if res != nil {
		result, attempts = *res, s.spec.Load().rule.DecidingRun(state.Last)
	} else if in := s.target.current(); in.note != nil {
		why = cmp.Or(in.note.reason, why)
	}
	byAttempt := res != nil
	return func(to *slog.Logger) {
		level, message := slog.LevelInfo, "verdict changed"
		if state.Verdict == probe.Failing && (byAttempt || !why.IsPlanned()) {
			level = slog.LevelWarn
		}
		if before == state.Verdict {
			message = "first verdict"
		}
		attrs := append(probeAttrs(id, state.Instance), slog.String("verdict", state.Verdict.String()), slog.String("previous", before.String()))
		switch {
		case !byAttempt:
			attrs = append(attrs, slog.String("reason", string(why)))
		case attempts > 0:
			attrs = append(attrs, slog.Int("attempts", int(attempts)))
		default:
			attrs = append(attrs, slog.String("policy", probe.PolicyEvidence.String()))
		}
		if byAttempt {
			attrs = append(attrs, resultAttrs(&result, state.Verdict == probe.Failing || !isFirst)...)
		}
		to.LogAttrs(context.Background(), level, message, attrs...)
	}
}

// eventLog queues the log lines about probes and targets, in limited numbers. scheduler.mu guards it.
type eventLog struct {
	out    *outbox
	debug  bool // each attempt is logged
	firsts firstVerdicts
	health healthLog
}

// limited queues a line about an event that may affect many targets at the same time, unless there are too many.
func (l *eventLog) limited(line logLine, now int64) {
	if l.firsts.allow(probe.Undecided, now) {
		l.out.log(line)
	}
}

// attempt queues the lines about an attempt: the first verdict on an instance, unless it confirms that the probe passes, each
// change of the verdict, the first attempt that could not be made, and begin and end of blindness and warnings.
func (l *eventLog) attempt(s *slot, f *folded, res *probe.Result, now int64) {
	if l.debug {
		l.out.log(newAttemptLine(s, f, res, "attempt", slog.LevelDebug))
	}
	decided := f.first && f.decided
	if f.Changed || decided {
		s.flags.set(unknownLogged, false)
	}
	if f.Changed || decided && f.state.Verdict == probe.Failing {
		if !f.first || l.firsts.allow(f.state.Verdict, now) {
			l.out.log(newVerdictLine(s, f, res))
		}
	}
	message, level := "", slog.LevelWarn
	switch {
	case f.blind && !f.wasBlind:
		message = "probe blind: its attempts cannot be made"
	case f.wasBlind && !f.blind:
		message, level = "probe no longer blind", slog.LevelInfo
	case f.warns && !f.warned:
		message = "probe warns: it passes, but its target is degraded"
	case f.warned && !f.warns && !f.Changed:
		message, level = "probe no longer warns", slog.LevelInfo
	case res.Outcome == probe.Unknown && !res.Reason.BlamesEngine() && !s.flags.has(unknownLogged):
		s.flags.set(unknownLogged, true)
		message = "attempt could not be made"
	}
	if message != "" {
		l.limited(newAttemptLine(s, f, res, message, level), now)
	}
}

// newAttemptLine returns the line about one attempt.
func newAttemptLine(s *slot, f *folded, res *probe.Result, message string, level slog.Level) logLine {
	id, state, result := s.id(), f.state, *res
	return func(to *slog.Logger) {
		attrs := append(probeAttrs(id, state.Instance), slog.String("outcome", result.Outcome.String()))
		if state.Errors > 0 { // consecutive attempts that could not be made
			attrs = append(attrs, slog.Int("errors", int(state.Errors)))
		}
		to.LogAttrs(context.Background(), level, message, append(attrs, resultAttrs(&result, true)...)...)
	}
}

const (
	// firstVerdictPeriod is the period for which first verdicts are counted together.
	firstVerdictPeriod = 10 * time.Second

	// maxFirstVerdicts is the maximum number of passing probes, and of failing ones, whose first verdict is logged individually
	// in a period, and of the lines about attempts that could not be made.
	maxFirstVerdicts = 100
)

// firstVerdicts limits the log lines about first verdicts, very many of which come at once after a start, and about attempts that
// could not be made: those beyond maxFirstVerdicts are only counted, in one line. scheduler.mu guards it.
type firstVerdicts struct {
	end     int64 // of the period
	logged  verdictCounts
	omitted verdictCounts
}

// verdictCounts has the number of probes by verdict. The one for Undecided is the number of limited lines, such as those about
// attempts that could not be made.
type verdictCounts [probe.Failing + 1]int

// allow counts a first verdict, and reports whether it is logged individually.
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

// next returns when check must be called, or never if no line was omitted.
func (f *firstVerdicts) next() int64 {
	if f.omitted == (verdictCounts{}) {
		return never
	}
	return f.end
}

// check returns the line that counts the omitted verdicts when their period has ended, otherwise nil.
func (f *firstVerdicts) check(now int64) logLine {
	if f.next() > now {
		return nil
	}
	n := f.omitted
	f.omitted = verdictCounts{}
	return func(to *slog.Logger) {
		level := slog.LevelInfo
		if n[probe.Failing]+n[probe.Undecided] > 0 {
			level = slog.LevelWarn
		}
		to.Log(context.Background(), level, "further first verdicts not logged individually", "passing", n[probe.Passing], "failing", n[probe.Failing], "unknown", n[probe.Undecided])
	}
}

// healthLog determines when to log that the engine has become degraded, and that it has recovered. scheduler.mu guards it.
type healthLog struct {
	degraded bool  // according to the last line
	due      int64 // next time at which check does anything
}

// healthLogPeriod is the interval at which check reads the health of the engine, which changes once a second.
const healthLogPeriod = int64(time.Second)

// next returns when check must be called.
func (l *healthLog) next() int64 {
	if !l.degraded {
		return never
	}
	return l.due
}

// check returns the line that is due, or nil. A degraded engine counts as recovered only when its score is 0, so that a
// fluctuating score produces one line.
func (l *healthLog) check(m *health.Monitor, now int64) logLine {
	if now < l.due {
		return nil
	}
	l.due = now + healthLogPeriod
	h := healthAt(m, now)
	if !l.degraded && !h.Degraded() || l.degraded && h.Score > 0 {
		return nil
	}
	l.degraded = !l.degraded
	isDegraded, stalled := l.degraded, h.Stalled.Round(time.Millisecond)
	return func(to *slog.Logger) {
		if isDegraded {
			to.Warn("engine degraded: timeouts are extended, and failures without a response cause no restart; check its CPU quota, memory and descriptors",
				"score", h.Score, "stalls", h.Stalls, "stalled", stalled)
			return
		}
		to.Info("engine no longer degraded", "stalls", h.Stalls, "stalled", stalled)
	}
}
