package process

import (
	"bytes"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
)

// maxLine bounds the text of one log record, in bytes. The rest of a longer line
// is dropped; the record tells how much that was.
const maxLine = 4 << 10

// lines turns a stream of a command's output into log records, one for each line
// and not more than perSecond in a second.
type lines struct {
	log       *slog.Logger
	words     *command.Tail // gets everything
	perSecond int

	mu         sync.Mutex
	line       []byte // what has come of the current line, at most maxLine
	cut        int    // how many bytes of it were dropped
	window     time.Time
	said       int         // records since window
	suppressed int         // lines since the last record that told of them
	tell       *time.Timer // tells of them when the window is over; nil when there is nothing to tell
	over       bool
}

// ReadFrom copies r until it ends, in pieces that are small enough to have one
// for each stream of each process.
func (l *lines) ReadFrom(r io.Reader) (total int64, err error) {
	piece := make([]byte, 4<<10)
	for {
		n, err := r.Read(piece)
		_, _ = l.Write(piece[:n])
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Write takes the next bytes of the stream. It returns len(p) and no error.
func (l *lines) Write(p []byte) (int, error) {
	_, _ = l.words.Write(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for {
		before, after, found := bytes.Cut(p, []byte{'\n'})
		l.add(before)
		if !found {
			return n, nil
		}
		l.flush()
		p = after
	}
}

// end logs what is left when the stream has ended.
func (l *lines) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) > 0 {
		l.flush()
	}
	l.tellSuppressed()
	l.over = true
}

func (l *lines) add(p []byte) {
	room := min(maxLine-len(l.line), len(p))
	l.line = append(l.line, p[:room]...)
	l.cut += len(p) - room
}

// flush logs the current line, or counts it when too many came before.
func (l *lines) flush() {
	text, cut := probe.CleanText(string(l.line), maxLine), l.cut
	l.line, l.cut = l.line[:0], 0
	if l.over {
		return
	}
	if now := time.Now(); now.Sub(l.window) >= time.Second {
		l.tellSuppressed()
		l.window, l.said = now, 0
	}
	if l.said >= l.perSecond {
		l.suppress()
		return
	}
	l.said++
	if cut > 0 {
		l.log.Info(text, "cut", cut)
		return
	}
	l.log.Info(text)
}

func (l *lines) suppress() {
	l.suppressed++
	if l.tell == nil {
		l.tell = time.AfterFunc(time.Second-time.Since(l.window), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.tellSuppressed()
		})
	}
}

func (l *lines) tellSuppressed() {
	if l.tell == nil {
		return
	}
	l.tell.Stop()
	l.tell = nil
	l.log.Warn("too many lines, some were dropped", "suppressed", l.suppressed)
	l.suppressed = 0
}
