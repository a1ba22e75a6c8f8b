package manifests

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/internal/files"
	"github.com/sonde-probe/sonde/kube"
)

// Dir is a directory of pod manifests, as last read. It must not be used concurrently.
type Dir struct {
	reader
	path      string
	files     map[string]*file // by name
	lastError string           // last logged error of reading the directory; empty after a successful read
	ignored   string           // last logged names of files that are not manifests
}

// file is a manifest file of the directory.
type file struct {
	info    os.FileInfo // from before the read
	read    time.Time
	sum     [sha256.Size]byte
	valid   bool     // a version of the file was valid
	targets []target // of the last valid version
}

// Copy returns a copy, which can be refreshed while the original is used.
func (d *Dir) Copy() *Dir {
	c := *d
	c.files = maps.Clone(d.files)
	return &c
}

// Limits on a directory of pods. The kubelet's default is 110 pods.
const (
	maxFiles = 1000
	maxBytes = 32 << 20 // of all files
)

// Refresh reads the files that have changed, and reports whether the targets have changed. An invalid file keeps its previous
// targets, and if the directory cannot be read, all targets are kept. Both are logged once, and so are files whose names are
// not those of manifests.
func (d *Dir) Refresh(now time.Time) (changed bool, err error) {
	files, err := d.list()
	if err != nil {
		if text := err.Error(); text != d.lastError {
			d.lastError = text
			d.log.Error("pods directory unreadable, keeping the current pods", "error", err)
		}
		return false, err
	}
	d.lastError = ""
	for name := range d.files {
		if _, there := files[name]; !there {
			changed = changed || len(d.files[name].targets) > 0
			delete(d.files, name)
		}
	}
	for name, info := range files {
		changed = d.refreshFile(name, info, now) || changed
	}
	return changed, nil
}

// list returns the manifest files of the directory.
func (d *Dir) list() (map[string]os.FileInfo, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	files := map[string]os.FileInfo{}
	var ignored []string
	for _, e := range entries {
		if !isManifest(e.Name()) {
			ignored = append(ignored, e.Name())
			continue
		}
		info, err := os.Stat(filepath.Join(d.path, e.Name())) // follows links
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since ReadDir
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			files[filepath.Join(d.path, e.Name())] = info
		}
	}
	d.warnOfIgnored(ignored)
	return files, d.checkSize(files)
}

// warnOfIgnored logs files and directories that are skipped because of their names, whenever that list has changed. Names that
// begin with a dot are not logged, since those files are hidden on purpose.
func (d *Dir) warnOfIgnored(names []string) {
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") })
	shown := cli.SomeNames(names)
	if shown != "" && shown != d.ignored {
		d.log.Warn("files ignored, rename them to *.yaml, *.yml or *.json", "directory", d.path, "files", shown)
	}
	d.ignored = shown
}

func (d *Dir) checkSize(files map[string]os.FileInfo) error {
	size := int64(0)
	for _, info := range files {
		size += info.Size()
	}
	switch {
	case len(files) > maxFiles:
		return fmt.Errorf("%s has %d files, at most %d are allowed", d.path, len(files), maxFiles)
	case size > maxBytes:
		return fmt.Errorf("the files of %s have %d bytes, at most %d are allowed", d.path, size, maxBytes)
	}
	return nil
}

// refreshFile reads a file if it may have changed, and reports whether its targets have changed.
func (d *Dir) refreshFile(name string, info os.FileInfo, now time.Time) bool {
	old := d.files[name]
	if old != nil && files.IsSame(old.info, info) && old.read.Sub(info.ModTime()) > settleTime {
		return false
	}
	text, err := files.ReadRegular(name, kube.MaxManifestBytes)
	if err != nil {
		text = []byte(err.Error()) // so that sum detects a new error
	}
	f := &file{info: info, read: now, sum: sha256.Sum256(text)}
	d.files[name] = f
	if old != nil {
		f.valid, f.targets = old.valid, old.targets
		if f.sum == old.sum {
			return false
		}
	}
	errs := []error{err}
	if err == nil {
		f.targets, errs = d.reader.read(name, text, f.targets)
	}
	if len(errs) == 0 {
		f.valid = true
		d.warnOfPorts(f)
		return true
	}
	message := "manifest rejected, running none of its pods"
	if f.valid {
		message = "manifest rejected, keeping the pods of its last valid version"
	}
	for _, err := range errs {
		d.log.Error(message, "file", name, "error", err)
	}
	return false
}

// warnOfPorts logs the ports of a file's containers that other containers also use.
func (d *Dir) warnOfPorts(f *file) {
	used := ports{}
	for _, other := range d.files {
		if other == f {
			continue
		}
		for _, t := range other.targets {
			if t.target.Driver != nil {
				used.add(t.container)
			}
		}
	}
	for _, t := range f.targets {
		if t.target.Driver == nil {
			continue
		}
		if conflict := used.add(t.container); conflict != "" {
			d.log.Warn("port conflict", "target", t.container.Target.Name, "detail", conflict)
		}
	}
}

// settleTime is how old a modification must be when a file is read, so that a later modification gets another time: some file
// systems round times to two seconds.
const settleTime = 2 * time.Second
