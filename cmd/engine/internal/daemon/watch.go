package daemon

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/internal/files"
)

const (
	// watchPeriod is how often the files of a configuration are checked.
	watchPeriod = time.Second

	// maxUnsettled is the number of periods in a row in which files may keep changing before they are compared anyway.
	maxUnsettled = 10
)

// fileWatch detects that the files of a configuration have changed since they were read. It polls them. Polling detects the
// changes of editors, configuration management and Kubernetes (replaced files, links to another directory) on every file
// system, and needs no descriptors.
type fileWatch struct {
	inputs *handlers.Inputs
	paths  []string // of the configuration

	read atomic.Pointer[accepted.Inputs] // the inputs that were read last; nil if the watch is off
}

// use turns the watch on or off, as set in the configuration in use. in are the inputs that were read last, whether they were
// put into use or rejected.
func (w *fileWatch) use(on bool, in *accepted.Inputs) {
	if !on {
		in = nil
	}
	w.read.Store(in)
}

// isOn reports whether the watch is on.
func (w *fileWatch) isOn() bool { return w.read.Load() != nil }

// run calls changed when files have changed and then stayed unchanged for one period, or have kept changing for maxUnsettled
// periods, until ctx is done.
func (w *fileWatch) run(ctx context.Context, changed func()) {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	var compared, last []stamp
	for unsettled := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		read := w.read.Load()
		if read == nil {
			continue
		}
		now := w.look(read)
		switch {
		case slices.EqualFunc(now, compared, stamp.isAs):
			unsettled = 0
		case !slices.EqualFunc(now, last, stamp.isAs) && unsettled < maxUnsettled:
			unsettled++
		default:
			compared = now
			if unsettled == maxUnsettled { // a further change may have the same stamp
				compared = nil
			}
			unsettled = 0
			if w.isOther(read) {
				changed()
			}
		}
		last = now
	}
}

// isOther reports whether the content of the files differs from the content that was read.
func (w *fileWatch) isOther(read *accepted.Inputs) bool {
	for _, path := range w.inputs.Paths(w.paths) {
		if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
			return false // a pipe can be read only once
		}
	}
	sources, files, _ := w.inputs.Read(w.paths)
	return !read.Again(sources, files).Equal(read)
}

// stamp is the result of the last stat of a file, or of the file that a link leads to.
type stamp struct {
	name string
	info os.FileInfo // nil if stat has failed
}

func stampOf(path string) stamp {
	info, _ := os.Stat(path) // no info with an error
	return stamp{path, info}
}

// isDir reports whether s is a directory, whose own stamp also changes with files that are not sources.
func (s stamp) isDir() bool { return s.info != nil && s.info.IsDir() }

// isAs reports whether a file is unchanged between two stamps.
func (s stamp) isAs(o stamp) bool {
	if s.name != o.name || s.info == nil || o.info == nil {
		return s == o
	}
	return files.IsSame(s.info, o.info) || s.isDir() && os.SameFile(s.info, o.info)
}

// look returns the stamps of all files.
func (w *fileWatch) look(read *accepted.Inputs) (all []stamp) {
	for _, path := range slices.Concat(w.inputs.Paths(w.paths), w.inputs.Files(), read.Paths()) {
		s := stampOf(path)
		all = append(all, s)
		if !s.isDir() {
			continue
		}
		entries, _ := os.ReadDir(path)
		for _, e := range entries {
			if config.IsSource(e.Name()) {
				all = append(all, stampOf(filepath.Join(path, e.Name())))
			}
		}
	}
	return all
}
