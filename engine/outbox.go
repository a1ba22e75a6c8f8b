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
	RecordPenalty                    // see Records.Penalty: it has changed otherwise than by its decay
	RecordOutcomes                   // see Records.Outcomes: a run has begun, or is twice as long: often enough to write them to a disk
)

// outbox has the effects of changes that were made while scheduler.mu was held, in their order. Each may block:
// scheduler.unlock applies them without the lock. scheduler.mu guards it.
type outbox struct {
	effects []effect
	records bool // Config.Recorded is set
}

// effect is a log line, a record that has changed, or a handler to be closed.
type effect interface{ apply(to *outlets) }

// outlets are where effects go.
type outlets struct {
	logger   *slog.Logger
	recorded func(target string, r Record) // Config.Recorded; may be nil
}

// take empties the outbox.
func (o *outbox) take() []effect {
	effects := o.effects
	o.effects = nil
	return effects
}

// log queues a log line; nil is none.
func (o *outbox) log(line logLine) {
	if line != nil {
		o.effects = append(o.effects, lineEffect{line})
	}
}

// record queues that a record about a target has changed.
func (o *outbox) record(target string, r Record) {
	if o.records {
		o.effects = append(o.effects, recordEffect{target, r})
	}
}

// close queues that a handler is closed.
func (o *outbox) close(h io.Closer) { o.effects = append(o.effects, closeEffect{h}) }

type lineEffect struct{ logLine }

func (e lineEffect) apply(to *outlets) { e.write(to.logger) }

type recordEffect struct {
	target string
	record Record
}

func (e recordEffect) apply(to *outlets) { to.recorded(e.target, e.record) }

type closeEffect struct{ handler io.Closer }

func (e closeEffect) apply(*outlets) { _ = e.handler.Close() } // an error is the handler's own problem: its probes are gone
