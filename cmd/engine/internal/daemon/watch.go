package daemon

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/accepted"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
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
		case slices.Equal(now, compared):
			unsettled = 0
		case !slices.Equal(now, last) && unsettled < maxUnsettled:
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
	for _, path := range handlers.OrDefault(w.paths) {
		if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
			return false // a pipe: it can be read once
		}
	}
	sources, files, _ := w.inputs.Read(w.paths)
	return !read.Again(sources, files).Equal(read)
}

// stamp is what changes with a file, or with what a link leads to; of a file that cannot be looked
// at it has only the name.
type stamp struct {
	name     string
	size     int64
	modified int64 // nanoseconds since 1970
	inode    uint64
	dir      bool
}

// look returns the stamps of all files.
func (w *fileWatch) look(read *accepted.Inputs) (all []stamp) {
	for _, path := range slices.Concat(handlers.OrDefault(w.paths), w.inputs.VarFiles(), read.Paths()) {
		s := stampOf(path)
		all = append(all, s)
		if !s.dir {
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

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{name: path}
	}
	s := stamp{name: path, dir: info.IsDir(), inode: inodeOf(info)}
	if !s.dir { // a directory changes with files that are no sources
		s.size, s.modified = info.Size(), info.ModTime().UnixNano()
	}
	return s
}

// inodeOf returns the number of a file, by which another file of the same size and age is found.
func inodeOf(info fs.FileInfo) uint64 {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return stat.Ino
}
