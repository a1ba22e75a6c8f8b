package process

import (
	"bytes"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
)

// maxLine is the maximum size of the text of one log record, in bytes. The rest of a longer line is dropped; the record
// has the number of dropped bytes in the attribute truncated_bytes.
const maxLine = 4 << 10

// lineLogger logs a stream of a command's output, one record per line and at most perSecond records per second. The
// number of dropped lines is logged with the next line in a later second, or at the end.
type lineLogger struct {
	log       *slog.Logger
	tail      *command.Output // gets all text
	perSecond int
	total     *atomic.Uint64 // dropped lines of all streams of the target

	line      []byte    // the current line so far, at most maxLine
	cut       int       // number of its bytes that were dropped
	continued bool      // its beginning was already logged
	window    time.Time // start of the current second
	records   int       // number of records in the window
	dropped   int       // number of dropped lines since the last record about them
}

// Write receives the next bytes of the stream. It never returns an error.
func (l *lineLogger) Write(p []byte) (int, error) {
	_, _ = l.tail.Write(p)
	n := len(p)
	for {
		before, after, found := bytes.Cut(p, []byte{'\n'})
		l.add(before)
		if !found {
			return n, nil
		}
		if !l.continued || len(l.line) > 0 {
			l.flush()
		}
		l.continued = false
		p = after
	}
}

// Unfinished implements logfile.Liner.
func (l *lineLogger) Unfinished() bool { return len(l.line) > 0 }

// EndLine logs the unfinished line. If more of it follows, that is a separate record.
func (l *lineLogger) EndLine() {
	l.flush()
	l.continued = true
}

// end logs the unfinished line and the number of dropped lines.
func (l *lineLogger) end() {
	if len(l.line) > 0 {
		l.flush()
	}
	l.logDropped()
}

func (l *lineLogger) add(p []byte) {
	room := min(maxLine-len(l.line), len(p))
	l.line = append(l.line, p[:room]...)
	l.cut += len(p) - room
}

// flush logs the current line, or counts it as dropped.
func (l *lineLogger) flush() {
	line, cut := l.line, l.cut
	l.line, l.cut = l.line[:0], 0
	if now := time.Now(); now.Sub(l.window) >= time.Second {
		l.logDropped()
		l.window, l.records = now, 0
	}
	if l.records >= l.perSecond {
		l.dropped++
		l.total.Add(1)
		return
	}
	l.records++
	text := probe.CleanText(string(line), maxLine)
	if cut > 0 {
		l.log.Info(text, "truncated_bytes", cut)
		return
	}
	l.log.Info(text)
}

func (l *lineLogger) logDropped() {
	if l.dropped > 0 {
		l.log.Warn("output too fast, lines dropped", "dropped", l.dropped)
	}
	l.dropped = 0
}
