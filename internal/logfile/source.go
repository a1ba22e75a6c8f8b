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

// Liner takes the bytes of a Source.
type Liner interface {
	io.Writer         // returns no error
	Unfinished() bool // whether the last line has no end yet, and was not written
	EndLine()         // writes it all the same
}

// unfinishedFor is how long an unfinished line waits for its end: a prompt, or a process that hangs while it writes
// one, is to be seen. A variable for tests.
var unfinishedFor = time.Second

// Copy copies the output until it ends, or Stop says.
func (s *Source) Copy(to Liner) {
	buf := make([]byte, 4<<10)    // there is one for each stream of each process
	waits, isNext := false, false // for the end of a line, and that of another one than before
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

// wait sets how long Read waits. It leaves a deadline of Stop, whenever that is called.
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

// Stop ends Copy at the end of the output, or after a time.
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
