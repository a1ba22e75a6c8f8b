// Package codecache keeps compiled plugins in a directory that only this user can write,
// and removes those that were used longest ago.
//
// # Files
//
//	codecache.go      Open, the directory of one module, eviction
//	temporary.go      directories of compilations, removed when their process was killed
//	private_unix.go   who may write to a directory and those above it, and locks
//	private_other.go  the same where that cannot be checked
package codecache

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Entry is the compiled code of one module: a directory of its own. What it holds is run, so
// other users must not be able to write to it. wazero tells its versions and the features of
// processors apart by the names of files.
//
// Code is compiled into a temporary directory, and moved into the entry when it is complete: see
// MakeTemporary and Keep.
type Entry struct {
	root    string     // empty: there is no cache
	dir     string     // of the module, below root
	maxSize int64      // of all entries together
	temp    *temporary // nil: none
}

// nameLength is the length of an entry's name, in hexadecimal digits.
const nameLength = 32

// Open checks the cache's directory, creates it if needed, and returns the entry of a
// module. Root is the directory; empty disables the cache. MaxSize bounds all entries
// together, in bytes. An error is a *probe.FieldError.
func Open(root string, maxSize int64, module []byte) (*Entry, error) {
	if root == "" {
		return &Entry{}, nil
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, probe.FieldErrorf("cache_dir", "cannot be created: %v", err)
	}
	if err := checkPrivate(root); err != nil {
		return nil, probe.FieldErrorf("cache_dir", "is not safe to run code from: %v", err)
	}
	hash := sha256.Sum256(module)
	return &Entry{root: root, dir: filepath.Join(root, hex.EncodeToString(hash[:])[:nameLength]), maxSize: maxSize}, nil
}

// Dir returns the directory of the entry's code, or "" when there is no cache.
func (e *Entry) Dir() string {
	if e.root == "" {
		return ""
	}
	return e.dir
}

// HasCode reports whether there is code for the module, though perhaps for another version of
// the compiler, or for another processor.
func (e *Entry) HasCode() bool {
	if e.root == "" {
		return false
	}
	files, _ := usage(e.dir)
	return files > 0
}

// MakeTemporary makes a private directory for a compilation, and returns it: in the cache, or
// without one in the system's directory for temporary files. It replaces the previous one, and
// removes those of processes that were killed.
func (e *Entry) MakeTemporary() (dir string, err error) {
	e.removeTemporary()
	if e.temp, err = makeTemporary(cmp.Or(e.root, os.TempDir())); err != nil {
		return "", err
	}
	return e.temp.dir, nil
}

// Keep moves the code from the temporary directory into the entry. Without a cache it does
// nothing.
func (e *Entry) Keep() error {
	if e.root == "" {
		return nil
	}
	return filepath.WalkDir(e.temp.dir, func(from string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		to := filepath.Join(e.dir, strings.TrimPrefix(from, e.temp.dir))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		return os.Rename(from, to)
	})
}

// Enabled reports whether there is a cache.
func (e *Entry) Enabled() bool { return e.root != "" }

// Disable gives up a cache that cannot be written.
func (e *Entry) Disable() { e.root = "" }

// Discard removes the entry's code, which is damaged.
func (e *Entry) Discard() {
	if e.root != "" {
		_ = os.RemoveAll(e.dir) // what remains is found to be damaged again
	}
}

// Finish is called after the code was loaded. It marks the entry as used now, and removes the
// entries that were used longest ago until the rest is within the maximum size. It removes the
// temporary directory.
func (e *Entry) Finish() {
	e.removeTemporary()
	if e.root != "" {
		now := time.Now()
		_ = os.Chtimes(e.dir, now, now) // it may not exist
		e.evict()
	}
}

func (e *Entry) removeTemporary() {
	if e.temp != nil {
		e.temp.remove()
		e.temp = nil
	}
}

func (e *Entry) evict() {
	type entry struct {
		dir  string
		size int64
		used time.Time
	}
	found, err := os.ReadDir(e.root)
	if err != nil {
		return
	}
	var others []entry
	total := int64(0)
	for _, f := range found {
		info, err := f.Info()
		if _, hexErr := hex.DecodeString(f.Name()); err != nil || hexErr != nil || len(f.Name()) != nameLength || !f.IsDir() {
			continue
		}
		dir := filepath.Join(e.root, f.Name())
		_, size := usage(dir)
		total += size
		if dir != e.dir {
			others = append(others, entry{dir, size, info.ModTime()})
		}
	}
	slices.SortFunc(others, func(a, b entry) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.dir, b.dir)) })
	for _, old := range others {
		if total <= e.maxSize {
			return
		}
		_ = os.RemoveAll(old.dir) // the next Finish tries again
		total -= old.size
	}
}

// usage returns the number of files of code below a directory and the total size of all its
// files. Those that cannot be read do not count.
func usage(dir string) (files int, size int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
			if filepath.Ext(d.Name()) == "" { // wazero writes to "….tmp" first
				files++
			}
		}
		return nil
	})
	return files, size
}
