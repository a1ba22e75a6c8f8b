package engine

import (
	"io"
	"log/slog"
)

// Record is something about a target that an Engine remembers for the one that is started after it: see Config.Recorded.
type Record uint8

// The records.
const (
	RecordHistory  Record = iota + 1 // see Records.History: there is another Transition
	RecordUptime                     // see Records.SavedUptime: the state has changed
	RecordPenalty                    // see Records.Penalty: it has changed otherwise than by its decay
	RecordOutcomes                   // see Records.Outcomes: a run has begun, or is twice as long: often enough to write them to a disk
)

// outbox has the effects of changes that were made while scheduler.mu was held, in their order: log lines, records that have
// changed, questions, and handlers to be closed. Each may block: scheduler.unlock calls them without the lock. scheduler.mu guards effects.
type outbox struct {
	logger   *slog.Logger
	recorded func(target string, r Record) // Config.Recorded; may be nil
	effects  []func()
}

// take empties the outbox.
func (o *outbox) take() []func() {
	effects := o.effects
	o.effects = nil
	return effects
}

// log queues a log line; nil is none.
func (o *outbox) log(line logLine) {
	if line != nil {
		o.effects = append(o.effects, func() { line(o.logger) })
	}
}

// record queues that a record about a target has changed.
func (o *outbox) record(target string, r Record) {
	if o.recorded != nil {
		o.effects = append(o.effects, func() { o.recorded(target, r) })
	}
}

// ask queues a Question.
func (o *outbox) ask(question func()) { o.effects = append(o.effects, question) }

// close queues that a handler is closed.
func (o *outbox) close(h io.Closer) {
	o.effects = append(o.effects, func() { _ = h.Close() }) // an error is the handler's own problem: its probes are gone
}
