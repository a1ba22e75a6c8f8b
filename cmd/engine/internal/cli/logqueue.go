package cli

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/redact"
)

// maxQueuedLog limits the size of queued records, in bytes. Another batch of that size may be in the write to the reader.
const maxQueuedLog = 4 << 20

// LogQueue is the io.Writer of a log whose reader may be slow, stopped or gone. Write never blocks: the queue's own goroutine
// writes the records. Records that do not fit are dropped and counted. When the reader resumes, one record reports their
// number. It is safe for concurrent use.
type LogQueue struct {
	Secrets redact.Redactor // replaces values in the records

	to    io.Writer
	ended chan struct{} // closed when the goroutine exits

	queueMu sync.Mutex // guards the fields below
	changed sync.Cond  // of queueMu; signals that there are records, or the queue is closed
	pending []byte     // whole records
	spare   []byte     // an empty buffer to reuse for pending
	dropped uint64     // records, since the start
	noted   uint64     // dropped records that notes in the log have reported
	note    noteFunc   // nil until Logger is called
	closed  bool
}

// noteFunc formats the record that reports the number of dropped records.
type noteFunc func(dropped uint64) []byte

// NewLogQueue returns a queue that writes to w. Close ends its goroutine.
func NewLogQueue(w io.Writer) *LogQueue {
	q := &LogQueue{to: w, ended: make(chan struct{})}
	q.changed.L = &q.queueMu
	go q.writeAll()
	return q
}

// Logger returns a logger like that of NewLogger that writes to the queue.
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

// Dropped returns the number of records that were not written since the start.
func (q *LogQueue) Dropped() uint64 {
	q.queueMu.Lock()
	defer q.queueMu.Unlock()
	return q.dropped
}

// Close drops all later records. It returns when the queue has been written, or after the timeout. If the write blocks, the
// goroutine is abandoned.
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

// writeAll writes the records until the queue is closed and empty. If a write fails, the unwritten records are dropped, and the
// next write is tried.
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

// next waits for records and returns all queued ones. If records were dropped, a note with their number follows. It returns nil
// if the queue is closed and empty.
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

// lose counts the records of a batch that could not be written. If the batch had a note, which is then lost too, the next note
// repeats its count.
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
