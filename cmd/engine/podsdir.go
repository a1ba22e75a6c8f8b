package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// podDir is a directory of pod manifests, as it was looked at last. It belongs to
// one goroutine.
type podDir struct {
	path   string
	reader podReader
	log    *slog.Logger
	files  map[string]*podFile // by name
	broken string              // why it could not be read, as it was told
}

// podFile is a file of the directory.
type podFile struct {
	info    os.FileInfo // as it was before it was read
	read    time.Time
	sum     [sha256.Size]byte
	targets []podTarget // of its latest good text
}

// Bounds on a directory of pods. The kubelet's default is 110 pods.
const (
	maxPodFiles = 1000
	maxPodBytes = 32 << 20 // of all files
)

// look reads what has changed since the last look, and reports whether anything
// has. A file that is wrong is told, and what it said before stays. So does all
// when the directory cannot be read; that is told once.
func (p *podDir) look(now time.Time) (changed bool, err error) {
	files, err := p.list()
	if err != nil {
		if problem := err.Error(); problem != p.broken {
			p.broken = problem
			p.log.Error("pods cannot be read, those before stay", "err", err)
		}
		return false, err
	}
	p.broken = ""
	for name := range p.files {
		if _, there := files[name]; !there {
			changed = changed || len(p.files[name].targets) > 0
			delete(p.files, name)
		}
	}
	for name, info := range files {
		changed = p.file(name, info, now) || changed
	}
	return changed, nil
}

// list returns the manifest files of the directory.
func (p *podDir) list() (map[string]os.FileInfo, error) {
	entries, err := os.ReadDir(p.path)
	if err != nil {
		return nil, err
	}
	files := map[string]os.FileInfo{}
	for _, e := range entries {
		if !isManifest(e.Name()) {
			continue
		}
		info, err := os.Stat(filepath.Join(p.path, e.Name())) // of what a link leads to
		if errors.Is(err, os.ErrNotExist) {
			continue // it went while we looked
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			files[filepath.Join(p.path, e.Name())] = info
		}
	}
	return files, p.checkSize(files)
}

func (p *podDir) checkSize(files map[string]os.FileInfo) error {
	size := int64(0)
	for _, info := range files {
		size += info.Size()
	}
	switch {
	case len(files) > maxPodFiles:
		return fmt.Errorf("%s has %d files, at most %d are allowed", p.path, len(files), maxPodFiles)
	case size > maxPodBytes:
		return fmt.Errorf("the files of %s have %d bytes, at most %d are allowed", p.path, size, maxPodBytes)
	}
	return nil
}

// file reads a file that may have changed, and reports whether it has.
func (p *podDir) file(name string, info os.FileInfo, now time.Time) bool {
	was := p.files[name]
	if was != nil && was.isAsBefore(info) {
		return false
	}
	text, err := readManifest(nil, name)
	if err != nil {
		text = []byte(err.Error()) // it is told once, as a wrong text is
	}
	is := &podFile{info: info, read: now, sum: sha256.Sum256(text)}
	p.files[name] = is
	if was != nil {
		is.targets = was.targets
		if is.sum == was.sum {
			return false
		}
	}
	errs := []error{err}
	if err == nil {
		is.targets, errs = p.reader.read(name, text, is.targets)
	}
	for _, err := range errs {
		p.log.Error("manifest refused, what it said before stays", "err", err)
	}
	if len(errs) == 0 {
		p.warnOfPorts(is)
	}
	return len(errs) == 0
}

// warnOfPorts tells which ports of a file's containers others use, too.
func (p *podDir) warnOfPorts(file *podFile) {
	used := portUsers{}
	for _, other := range p.files {
		if other == file {
			continue
		}
		for _, t := range other.targets {
			used.add(t.container)
		}
	}
	for _, t := range file.targets {
		if problem := used.add(t.container); problem != "" {
			p.log.Warn(problem, "target", t.name)
		}
	}
}

// settled is how old a change must be when a file is read, so that one that
// follows it shows in the file's time.
const settled = 2 * time.Second

// isAsBefore reports whether a file need not be read again.
func (f *podFile) isAsBefore(info os.FileInfo) bool {
	same := os.SameFile(f.info, info) && f.info.Size() == info.Size() && f.info.ModTime().Equal(info.ModTime())
	return same && f.read.Sub(info.ModTime()) > settled
}
