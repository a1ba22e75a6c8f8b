// Package logfile appends lines to a file that is replaced by a new one when it is full. Who
// writes lines never waits for the disk.
//
//	logfile.go  File: the lines that wait, and the goroutine that writes them
//	check.go    whether a file can be written
//	rotate.go   the files, and their names
//	lines.go    Lines: puts the pieces of a stream together
//	source.go   Source: copies a stream, and does not wait for the end of a line for ever
package logfile

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Config says where lines go. It can be written as JSON.
type Config struct {
	Path     string `json:",omitempty"` // of the file; absolute. Empty: to the standard output of this program
	MaxSize  int64  `json:",omitempty"` // of a file, in bytes; a line that is longer makes it larger
	MaxFiles int    `json:",omitempty"` // how many files are kept, with the one that is written; 1 or more
}

// maxWaiting bounds the lines that wait to be written, in bytes.
const maxWaiting = 256 << 10

// retryPause is the time between two tries to write, after an error.
const retryPause = time.Second

// File appends lines. While there are none it has neither a goroutine nor an open file. Its methods
// may be called concurrently.
type File struct {
	config  Config
	dropped *atomic.Uint64
	failed  func(error)
	to      *os.File // instead of config.Path; nil for none

	waitingMu sync.Mutex    // guards all below
	failure   error         // of the last write; nil after a success, or before the first one
	waiting   []byte        // whole lines, at most maxWaiting
	writing   chan struct{} // closed when the goroutine that writes has ended; nil without one
	abandoned bool          // what the goroutine could not write is dropped
}

// New returns a File. It adds to dropped the lines that it drops. Failed is called with the error when
// writing begins to fail, and with nil when it works again; by one goroutine at a time, which is not
// the caller's.
func New(c Config, dropped *atomic.Uint64, failed func(error)) *File {
	f := &File{config: c, dropped: dropped, failed: failed}
	if c.Path == "" {
		f.to = os.Stdout
	}
	return f
}

// write takes whole lines, of which the last may lack its end. Those that have no room are dropped,
// and counted. It never blocks.
func (f *File) write(p []byte) {
	f.waitingMu.Lock()
	defer f.waitingMu.Unlock()
	fits := firstLines(p, int64(maxWaiting-len(f.waiting)))
	f.dropped.Add(countLines(p[len(fits):]))
	f.waiting = append(f.waiting, fits...)
	if f.writing == nil && len(f.waiting) > 0 {
		f.writing = make(chan struct{})
		go f.writeAll(f.writing)
	}
}

// Flush returns when all lines are written, or after a time. Then it drops those that wait: the disk
// is full, or does not respond.
func (f *File) Flush(timeout time.Duration) {
	f.waitingMu.Lock()
	writing := f.writing
	f.waitingMu.Unlock()
	if writing == nil {
		return
	}
	select {
	case <-writing:
	case <-time.After(timeout):
		f.waitingMu.Lock()
		defer f.waitingMu.Unlock()
		f.dropped.Add(countLines(f.waiting))
		f.waiting, f.abandoned = nil, true
	}
}

// Failure returns the error of the last write, or nil if it has succeeded.
func (f *File) Failure() error {
	f.waitingMu.Lock()
	defer f.waitingMu.Unlock()
	return f.failure
}

// writeAll writes the lines that wait until there are none.
func (f *File) writeAll(ended chan<- struct{}) {
	defer close(ended)
	failing := false
	var spare []byte
	for {
		batch := f.take(spare)
		if len(batch) == 0 {
			return
		}
		rest, err := f.append(batch)
		f.end(rest, err)
		if failing != (err != nil) {
			f.failed(err)
		}
		if failing = err != nil; failing {
			time.Sleep(retryPause)
		}
		spare = batch[:0]
	}
}

// take returns the lines that wait, and keeps an empty buffer for the next ones. When there are none
// the goroutine ends.
func (f *File) take(spare []byte) (batch []byte) {
	f.waitingMu.Lock()
	defer f.waitingMu.Unlock()
	f.abandoned = false
	if batch, f.waiting = f.waiting, spare; len(batch) == 0 {
		f.waiting, f.writing = nil, nil
	}
	return batch
}

// end notes how a write has ended, and keeps the lines that it has left, before those that wait. The latest that have no
// room are dropped.
func (f *File) end(rest []byte, err error) {
	f.waitingMu.Lock()
	defer f.waitingMu.Unlock()
	if f.failure = err; err == nil {
		return
	}
	if f.abandoned {
		f.dropped.Add(countLines(rest))
		return
	}
	kept := firstLines(f.waiting, int64(maxWaiting-len(rest)))
	f.dropped.Add(countLines(f.waiting[len(kept):]))
	f.waiting = append(bytes.Clone(rest), kept...)
}

// countLines returns how many lines a text has, with an unfinished one at its end.
func countLines(p []byte) uint64 {
	n := bytes.Count(p, []byte{'\n'})
	if len(p) > 0 && p[len(p)-1] != '\n' {
		n++
	}
	return uint64(n)
}

// Counter counts the lines that are written to it, and drops them.
type Counter struct{ Dropped *atomic.Uint64 }

// Write returns len(p) and no error.
func (c Counter) Write(p []byte) (int, error) {
	c.Dropped.Add(uint64(bytes.Count(p, []byte{'\n'})))
	return len(p), nil
}
