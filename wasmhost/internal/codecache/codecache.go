// Package codecache keeps compiled plugins in a directory that only this user can write,
// and removes those that were used longest ago.
//
// # Files
//
//	codecache.go      Open, the directory of one module, eviction
//	private_unix.go   who may write to the directory and those above it
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
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/sonde-probe/sonde/probe"
)

// Entry is the compiled code of one module: a directory of its own inside of the cache's
// directory. What it holds is run, so other users must not be able to write to it.
type Entry struct {
	root    string
	dir     string // empty: the cache is disabled
	maxSize int64  // of all entries together
	files   int    // that were there before
	hit     bool
}

// nameLength is the length of an entry's name, in hexadecimal digits.
const nameLength = 32

// Open checks the cache's directory, creates it if needed, and returns the entry of a
// module. Root is the directory; empty disables the cache. MaxSize bounds all entries
// together, in bytes. An error is a *probe.FieldError.
func Open(root string, maxSize int64, wasm []byte) (*Entry, error) {
	if root == "" {
		return &Entry{}, nil
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, probe.FieldErrorf("cache_dir", "cannot be created: %v", err)
	}
	if err := checkPrivate(root); err != nil {
		return nil, probe.FieldErrorf("cache_dir", "is not safe to run code from: %v", err)
	}
	sum := sha256.Sum256(wasm)
	e := &Entry{root: root, dir: filepath.Join(root, hex.EncodeToString(sum[:])[:nameLength]), maxSize: maxSize}
	e.files, _ = usage(e.dir)
	return e, nil
}

// Enabled reports whether the cache is in use, that is, whether compiled code is stored in
// a directory.
func (e *Entry) Enabled() bool { return e.dir != "" }

// Hit reports whether compiled code was found. It is valid after Finish.
func (e *Entry) Hit() bool { return e.hit }

// Cache returns the entry for the compiler, or nil when the cache is disabled or cannot
// be used: compiling is only slower then.
func (e *Entry) Cache() wazero.CompilationCache {
	if !e.Enabled() {
		return nil
	}
	cache, err := wazero.NewCompilationCacheWithDir(e.dir)
	if err != nil {
		return nil
	}
	return cache
}

// Discard removes the entry's code, which may be damaged.
func (e *Entry) Discard() {
	_ = os.RemoveAll(e.dir) // what remains is found to be damaged again
	e.files = 0
}

// Finish is called after compiling. It marks the entry as used now, and removes the
// entries that were used longest ago until the rest is within the maximum size.
func (e *Entry) Finish() {
	if !e.Enabled() {
		return
	}
	files, _ := usage(e.dir)
	e.hit = files > 0 && files == e.files
	now := time.Now()
	_ = os.Chtimes(e.dir, now, now) // it may not exist
	e.evict()
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

// usage returns the number of files below a directory and their total size. Files that
// cannot be read do not count.
func usage(dir string) (files int, size int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			files++
			size += info.Size()
		}
		return nil
	})
	return files, size
}
