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
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/sonde-probe/sonde/probe"
)

// Entry is the compiled code of one module: a directory of its own. What it holds is run, so
// other users must not be able to write to it.
type Entry struct {
	root    string // empty: there is no cache
	dir     string // empty: there is no directory
	maxSize int64  // of all entries together
	hit     bool
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
	hash := sha256.New()
	hash.Write(module)
	hash.Write([]byte(target()))
	e := &Entry{root: root, dir: filepath.Join(root, hex.EncodeToString(hash.Sum(nil))[:nameLength]), maxSize: maxSize}
	files, _ := usage(e.dir)
	e.hit = files > 0
	return e, nil
}

// target tells compilers and processors apart whose code cannot be exchanged: it is the name
// that wazero gives the code of an empty module, in a directory for its version.
var target = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "sonde-plugin-")
	if err != nil {
		return ""
	}
	defer os.RemoveAll(dir)
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return ""
	}
	ctx := context.Background()
	defer cache.Close(ctx)
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache))
	if _, err := r.CompileModule(ctx, []byte("\x00asm\x01\x00\x00\x00")); err != nil {
		return ""
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	return strings.TrimPrefix(strings.Join(names, ""), dir)
})

// UseTemporary makes the entry a private directory that Finish removes.
func (e *Entry) UseTemporary() error {
	dir, err := os.MkdirTemp("", "sonde-plugin-")
	if err != nil {
		return err
	}
	if err := checkPrivate(dir); err != nil {
		_ = os.Remove(dir)
		return err
	}
	*e = Entry{dir: dir}
	return nil
}

// Temporary reports whether UseTemporary has made the entry.
func (e *Entry) Temporary() bool { return e.root == "" && e.dir != "" }

// Dir returns the directory of the entry's code, or "" when there is none: the cache is
// disabled.
func (e *Entry) Dir() string { return e.dir }

// Hit reports whether compiled code was found, and was not discarded.
func (e *Entry) Hit() bool { return e.hit }

// Cache returns the entry for the compiler, or nil when there is no directory, or it cannot
// be used.
func (e *Entry) Cache() wazero.CompilationCache {
	if e.dir == "" {
		return nil
	}
	cache, err := wazero.NewCompilationCacheWithDir(e.dir)
	if err != nil {
		return nil
	}
	return cache
}

// Discard removes the entry's code, which may be damaged or incomplete.
func (e *Entry) Discard() {
	if e.dir != "" {
		_ = os.RemoveAll(e.dir) // what remains is found to be damaged again
	}
	e.hit = false
}

// Finish is called after the code was loaded. It marks the entry as used now, and removes the
// entries that were used longest ago until the rest is within the maximum size. It removes a
// temporary entry.
func (e *Entry) Finish() {
	switch {
	case e.root != "":
		now := time.Now()
		_ = os.Chtimes(e.dir, now, now) // it may not exist
		e.evict()
	case e.Temporary():
		_ = os.RemoveAll(e.dir) // below the system's directory for temporary files
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
