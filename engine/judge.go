package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/sonde-probe/sonde/engine/verdict"
	"github.com/sonde-probe/sonde/probe"
)

// land takes the answer of a goroutine's attempt in, and returns another attempt
// for it to make.
func (e *Engine) land(f *flight, res *probe.Result, panics int) *flight {
	e.mu.Lock()
	defer e.unlock()
	now := e.clock.now()
	if e.take(f, res, panics, now); e.run.Err() != nil {
		return nil
	}
	next := e.relaunch(now)
	e.rouse()
	return next
}

// take takes an answer in, if somebody still wants it.
func (e *Engine) take(f *flight, res *probe.Result, panics int, now int64) {
	e.crowd.leave(f.lane)
	e.counters.panics += uint64(panics)
	switch {
	case e.run.Err() != nil:
	case f.slot.flight != f:
		e.counters.dropped++
	default:
		f.slot.fly(nil)
		e.count(f, res, now)
	}
}

// count folds an answer into its probe's state and schedules what follows.
func (e *Engine) count(f *flight, res *probe.Result, now int64) {
	s := f.slot
	e.counters.attempt(s.kind, s.spec.handlerName, res)
	s.mu.Lock()
	if s.record.result == nil {
		s.record.result = new(probe.Result)
	}
	*s.record.result, s.record.resultAt = *res, now
	s.record.attempts[res.Outcome]++
	s.tookLong(res)
	if s.took != nil && (res.Outcome == probe.Success || res.Outcome == probe.Warning) {
		s.took.add(res.Took)
	}
	s.mu.Unlock()
	next := e.step(s, verdict.Event{Type: verdict.Attempted, Instance: s.target.life(&e.clock), Outcome: res.Outcome}, now)
	again := s.again
	s.again = false
	switch {
	case next.Do == verdict.Wait:
	case again:
		e.scheduleSoon(s, max(now, s.due+int64(probe.MinPeriod)))
	default:
		e.schedule(s, e.turnAfter(f, now))
	}
	if s.kind == probe.Startup && s.target.start() {
		e.lookAll(s.target)
	}
}

// turnAfter returns the first of a probe's turns after an attempt that is not over
// yet. Those that the attempt has overrun are skipped, and never made up for.
func (e *Engine) turnAfter(f *flight, now int64) int64 {
	if f.next >= now {
		return f.next
	}
	at := f.slot.turn(now)
	e.counters.overrun += uint64((at - f.next) / int64(f.slot.spec.rule.Period))
	return at
}

// step folds an event into a probe's state and publishes what has changed.
func (e *Engine) step(s *slot, ev verdict.Event, now int64) verdict.Next {
	before := s.record.state
	state, next := verdict.Step(s.spec.rule, before, ev, e.clock.time(now))
	if state == before && next.Rest == s.record.rest {
		return next
	}
	s.mu.Lock()
	s.record.state, s.record.rest = state, next.Rest
	if state.Instance != before.Instance {
		s.record.result, s.record.resultAt = nil, 0
	}
	if next.Changed {
		s.record.since = now
		s.record.changes++
		if s.gauge != nil {
			s.gauge.set(state.Verdict)
		}
	}
	s.mu.Unlock()
	if next.Changed {
		e.announce(s, before, ev)
	}
	return next
}

// announce tells subscribers and the log that a verdict is another.
func (e *Engine) announce(s *slot, before verdict.State, ev verdict.Event) {
	e.markAll(s.id())
	if ev.Type == verdict.Attempted || s.record.state.Instance == before.Instance {
		n := news{id: s.id(), before: before.Verdict, state: s.record.state, cause: ev.Type}
		if s.record.result != nil {
			n.result = *s.record.result
		}
		e.news = append(e.news, n)
	}
}

// news is a verdict change to be logged.
type news struct {
	id     probe.ID
	before probe.Verdict
	state  verdict.State
	result probe.Result
	cause  verdict.EventType
}

// maxLoggedDetail bounds a log line's detail, in bytes.
const maxLoggedDetail = 512

func (n news) log(to *slog.Logger) {
	level := slog.LevelInfo
	if n.state.Verdict == probe.Failing {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("target", n.id.Target),
		slog.String("probe", n.id.Kind.String()),
	}
	if n.id.Name != "" {
		attrs = append(attrs, slog.String("name", n.id.Name))
	}
	attrs = append(attrs,
		slog.String("instance", n.state.Instance),
		slog.String("verdict", n.state.Verdict.String()),
		slog.String("was", n.before.String()),
	)
	if n.cause == verdict.Attempted {
		attrs = append(attrs, n.attempt()...)
	}
	to.LogAttrs(context.Background(), level, "verdict", attrs...)
}

// attempt returns what is to be said of the attempt that turned the verdict.
func (n news) attempt() []slog.Attr {
	attrs := []slog.Attr{slog.Duration("took", n.result.Took.Round(time.Microsecond))}
	if n.result.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(n.result.Reason)))
	}
	if n.result.Detail != "" && n.state.Verdict == probe.Failing {
		attrs = append(attrs, slog.String("detail", probe.CleanText(n.result.Detail, maxLoggedDetail)))
	}
	return attrs
}
