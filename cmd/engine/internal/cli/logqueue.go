package cli

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/redact"
)

// maxQueuedLog bounds the records that wait to be written, in bytes. As many may be
// on their way to the reader.
const maxQueuedLog = 4 << 20

// LogQueue is the io.Writer of a log whose reader may be slow, stopped or gone. Write
// never blocks: a goroutine of the queue's own writes the records, and those that do
// not fit are dropped and counted. When the reader is back, one record has their
// number. The methods may be called concurrently.
type LogQueue struct {
	Secrets redact.Redactor // replaces values in the records

	to    io.Writer
	ended chan struct{} // closed when the goroutine has ended

	queueMu sync.Mutex // guards the fields below
	changed sync.Cond  // of queueMu: there are records, or the queue is closed
	pending []byte     // whole records
	spare   []byte     // an empty buffer, for pending
	dropped uint64     // records, since the start
	noted   uint64     // those of them that the log's notes have counted
	note    noteFunc   // nil until Logger is called
	closed  bool
}

// noteFunc formats the record that says how many records were dropped.
type noteFunc func(dropped uint64) []byte

// NewLogQueue returns a queue in front of w. Close ends its goroutine.
func NewLogQueue(w io.Writer) *LogQueue {
	q := &LogQueue{to: w, ended: make(chan struct{})}
	q.changed.L = &q.queueMu
	go q.writeAll()
	return q
}

// Logger returns a logger that writes to the queue, as NewLogger does.
func (q *LogQueue) Logger(format string, level *slog.LevelVar) *slog.Logger {
	if format == "auto" && IsTerminal(q.to) {
		format = "text"
	}
	q.queueMu.Lock()
	defer q.queueMu.Unlock()
	q.note = func(dropped uint64) []byte {
		var b bytes.Buffer
		NewLogger(&b, format, level).Error("log records dropped: the log was read too slowly or could not be written", "dropped", dropped)
		return b.Bytes()
	}
	return newLogger(q, format, level, &q.Secrets)
}

// Write queues one record, or drops it. It returns len(record) and no error.
func (q *LogQueue) Write(record []byte) (int, error) {
	q.queueMu.Lock()
	defer q.queueMu.Unlock()
	if q.closed || len(q.pending)+len(record) > maxQueuedLog {
		q.dropped++
		return len(record), nil
	}
	q.pending = append(q.pending, record...)
	q.changed.Signal()
	return len(record), nil
}

// Dropped returns how many records were not written, since the start.
func (q *LogQueue) Dropped() uint64 {
	q.queueMu.Lock()
	defer q.queueMu.Unlock()
	return q.dropped
}

// Close drops all later records. It returns when the queue is written, or after the
// timeout: the goroutine is left behind if its write blocks.
func (q *LogQueue) Close(timeout time.Duration) {
	q.queueMu.Lock()
	q.closed = true
	q.changed.Signal()
	q.queueMu.Unlock()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-q.ended:
	case <-t.C:
	}
}

// writeAll writes the records until the queue is closed and empty. A write that fails
// drops what it has not written: the next one may succeed.
func (q *LogQueue) writeAll() {
	defer close(q.ended)
	for {
		batch, noted := q.next()
		if batch == nil {
			return
		}
		if n, _ := q.to.Write(batch); n < len(batch) {
			q.lose(batch[n:], noted)
		}
	}
}

// next waits for records, and returns all that are queued. If others were dropped, a
// note with their number follows. It returns nil when the queue is closed and empty.
func (q *LogQueue) next() (batch []byte, noted uint64) {
	q.queueMu.Lock()
	defer q.queueMu.Unlock()
	for len(q.pending) == 0 && !q.closed {
		q.changed.Wait()
	}
	if len(q.pending) == 0 {
		return nil, 0
	}
	batch = q.pending
	if q.dropped > q.noted && q.note != nil {
		noted = q.dropped - q.noted
		batch = append(batch, q.note(noted)...)
		q.noted = q.dropped
	}
	q.pending, q.spare = q.spare[:0], batch
	return batch, noted
}

// lose counts the records of a batch that could not be written. If its note is among
// them, the next one repeats what it counted.
func (q *LogQueue) lose(rest []byte, noted uint64) {
	q.queueMu.Lock()
	defer q.queueMu.Unlock()
	records := uint64(bytes.Count(rest, []byte{'\n'}))
	if noted > 0 {
		records--
		q.noted -= noted
	}
	q.dropped += records
}
