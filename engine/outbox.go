package engine

import (
	"io"
	"log/slog"
)

// Record is a kind of an engine's records about a target, from which the next engine resumes: see Config.Recorded.
type Record uint8

// The records.
const (
	RecordHistory  Record = iota + 1 // see Records.History: there is a new Transition
	RecordUptime                     // see Records.SavedUptime: the state has changed
	RecordPenalty                    // see Records.Penalty: it has changed other than by its decay
	RecordOutcomes                   // see Records.Outcomes: a run has begun, or has doubled in length
)

// outbox queues the effects of changes made while scheduler.mu is held, in order: log lines, changed records, questions, and
// handlers to be closed. Since each effect may block, scheduler.unlock runs them without the lock. scheduler.mu guards effects.
type outbox struct {
	logger   *slog.Logger
	recorded func(target string, r Record) // Config.Recorded; may be nil
	effects  []func()
}

// take empties the outbox and returns its effects.
func (o *outbox) take() []func() {
	effects := o.effects
	o.effects = nil
	return effects
}

// log queues a log line, unless line is nil.
func (o *outbox) log(line logLine) {
	if line != nil {
		o.effects = append(o.effects, func() { line(o.logger) })
	}
}

// record queues the notification that a record about a target has changed.
func (o *outbox) record(target string, r Record) {
	if o.recorded != nil {
		o.effects = append(o.effects, func() { o.recorded(target, r) })
	}
}

// ask queues a Question.
func (o *outbox) ask(question func()) { o.effects = append(o.effects, question) }

// close queues the closing of a handler.
func (o *outbox) close(h io.Closer) {
	o.effects = append(o.effects, func() { _ = h.Close() }) // errors are ignored: the handler has no probes any more
}
