// Package logfile appends lines to a file, which is replaced by a new one when it is full. Writers
// of lines never wait for the disk.
//
//	logfile.go  File: the waiting lines, and the goroutine that writes them
//	check.go    whether a file can be written
//	rotate.go   the files, and their names
//	lines.go    Lines: joins the pieces of a stream into lines
//	source.go   Source: copies a stream, and limits how long it waits for the end of a line
package logfile

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Config defines where lines are written. It can be marshaled as JSON.
type Config struct {
	Path     string `json:",omitempty"` // absolute path of the file; empty: the standard output of this program
	MaxSize  int64  `json:",omitempty"` // maximum size of a file, in bytes; a longer line makes it larger
	MaxFiles int    `json:",omitempty"` // how many files are kept, including the current one; at least 1
}

// maxWaiting is the maximum size of the lines that wait to be written, in bytes.
const maxWaiting = 256 << 10

// retryPause is the time between two attempts to write, after an error.
const retryPause = time.Second

// File appends lines. While there are none, it has neither a goroutine nor an open file. Its methods are safe for concurrent use.
type File struct {
	config  Config
	dropped *atomic.Uint64
	failed  func(error)
	to      *os.File // used instead of config.Path if not nil

	waitingMu sync.Mutex    // guards all below
	failure   error         // of the last write; nil after a success, or before the first one
	waiting   []byte        // whole lines, at most maxWaiting
	writing   chan struct{} // closed when the writing goroutine has exited; nil if there is none
	abandoned bool          // lines that the goroutine could not write are dropped
}

// New returns a File. The File adds the number of lines that it drops to dropped. It calls failed with the error when writing
// starts to fail, and with nil when it works again, from its own goroutine and never concurrently.
func New(c Config, dropped *atomic.Uint64, failed func(error)) *File {
	f := &File{config: c, dropped: dropped, failed: failed}
	if c.Path == "" {
		f.to = os.Stdout
	}
	return f
}

// write accepts whole lines, the last of which may be unfinished. It drops and counts lines for which maxWaiting leaves no space.
// It never blocks.
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

// Flush returns when all lines are written, or after a timeout. On a timeout it drops the waiting lines: the disk is full, or does
// not respond.
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

// Failure returns the error of the last write, or nil if it succeeded.
func (f *File) Failure() error {
	f.waitingMu.Lock()
	defer f.waitingMu.Unlock()
	return f.failure
}

// writeAll writes the waiting lines until there are none.
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

// take returns the waiting lines, and keeps an empty buffer for the next ones. If there are none, the goroutine must exit.
func (f *File) take(spare []byte) (batch []byte) {
	f.waitingMu.Lock()
	defer f.waitingMu.Unlock()
	f.abandoned = false
	if batch, f.waiting = f.waiting, spare; len(batch) == 0 {
		f.waiting, f.writing = nil, nil
	}
	return batch
}

// end records the result of a write, and puts the lines that it has not written before the waiting ones. The latest lines are
// dropped if they exceed maxWaiting.
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

// countLines returns the number of lines in a text, including an unfinished one at its end.
func countLines(p []byte) uint64 {
	n := bytes.Count(p, []byte{'\n'})
	if len(p) > 0 && p[len(p)-1] != '\n' {
		n++
	}
	return uint64(n)
}

// Counter counts the lines that are written to it, and discards them.
type Counter struct{ Dropped *atomic.Uint64 }

// Write returns len(p) and no error.
func (c Counter) Write(p []byte) (int, error) {
	c.Dropped.Add(uint64(bytes.Count(p, []byte{'\n'})))
	return len(p), nil
}
