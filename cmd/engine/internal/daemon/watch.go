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
	// watchPeriod is how often the files of a configuration are looked at.
	watchPeriod = time.Second

	// maxUnsettled is how many periods in a row files may change until they are compared all the same.
	maxUnsettled = 10
)

// fileWatch finds that the files of a configuration have changed since they were read. It looks at
// them: that finds what editors, configuration management and Kubernetes do (files that are
// replaced, links that are turned to another directory), on every file system, and takes no
// descriptors.
type fileWatch struct {
	inputs *handlers.Inputs
	paths  []string // of the configuration

	read atomic.Pointer[accepted.Inputs] // what was read last; nil: the watch is off
}

// use turns the watch on or off, as the configuration in use says, and notes what was read last,
// whether it was put into use or rejected.
func (w *fileWatch) use(on bool, in *accepted.Inputs) {
	if !on {
		in = nil
	}
	w.read.Store(in)
}

// isOn reports whether the watch is on.
func (w *fileWatch) isOn() bool { return w.read.Load() != nil }

// run calls changed when files have changed and have then been still for a period, or have not been
// still for long, until ctx is done.
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
			if unsettled == maxUnsettled { // one more change may have the same stamp
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

// isOther reports whether the files have other content than when they were read.
func (w *fileWatch) isOther(read *accepted.Inputs) bool {
	for _, path := range w.inputs.Paths(w.paths) {
		if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
			return false // a pipe: it can be read once
		}
	}
	sources, files, _ := w.inputs.Read(w.paths)
	return !read.Again(sources, files).Equal(read)
}

// stamp is a file, or what a link leads to, as it was looked at last.
type stamp struct {
	name string
	info os.FileInfo // nil: it cannot be looked at
}

func stampOf(path string) stamp {
	info, _ := os.Stat(path) // no info with an error
	return stamp{path, info}
}

// isDir reports whether it is a directory, whose own stamp changes with files that are no sources.
func (s stamp) isDir() bool { return s.info != nil && s.info.IsDir() }

// isAs reports whether nothing has changed from one look at a file to another one.
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
