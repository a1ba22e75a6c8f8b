package logfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// Source is an output whose lines are copied. Stop may be called concurrently with Copy.
type Source struct {
	*os.File

	stopAt atomic.Pointer[time.Time] // nil before Stop
}

// Liner receives the bytes of a Source.
type Liner interface {
	io.Writer         // returns no error
	Unfinished() bool // reports whether the last line is unfinished, and not yet written
	EndLine()         // writes an unfinished line
}

// unfinishedFor is how long an unfinished line waits for its end, so that a prompt, or the beginning of a line whose process hangs,
// becomes visible. It is a variable for tests.
var unfinishedFor = time.Second

// Copy copies the output until it ends, or until the time set by Stop.
func (s *Source) Copy(to Liner) {
	buf := make([]byte, 4<<10)    // there is one for each stream of each process
	waits, isNext := false, false // waits for the end of a line; that line is another one than before
	for {
		if unfinished := to.Unfinished(); unfinished != waits || unfinished && isNext {
			waits = unfinished
			s.wait(unfinished)
		}
		n, err := s.Read(buf)
		isNext = bytes.IndexByte(buf[:max(n, 0)], '\n') >= 0
		_, _ = to.Write(buf[:max(n, 0)])
		stop := s.stopAt.Load()
		switch {
		case err == nil:
		case !errors.Is(err, os.ErrDeadlineExceeded), stop != nil && !time.Now().Before(*stop):
			return
		case stop == nil:
			to.EndLine()
		}
	}
}

// wait sets how long Read waits. It keeps a deadline set by Stop, whenever that is called.
func (s *Source) wait(unfinished bool) {
	var until time.Time
	if unfinished {
		until = time.Now().Add(unfinishedFor)
	}
	_ = s.SetReadDeadline(until)
	if stop := s.stopAt.Load(); stop != nil {
		_ = s.SetReadDeadline(*stop)
	}
}

// Stop makes Copy return at the end of the output, or after a time.
func (s *Source) Stop(within time.Duration) {
	at := time.Now().Add(within)
	s.stopAt.Store(&at)
	_ = s.SetReadDeadline(at)
}

// Resume lets Copy be called again after Stop.
func (s *Source) Resume() {
	s.stopAt.Store(nil)
	_ = s.SetReadDeadline(time.Time{})
}
