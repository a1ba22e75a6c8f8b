package wasmhost

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
)

// store keeps the compiled code of one module, in a directory of its own inside of
// the cache's directory. What is in it is run: nobody else may write there.
type store struct {
	root  string
	dir   string // empty: nothing is kept
	size  int64  // bound of all modules' code, in bytes
	files int    // that were there before
	hit   bool
}

// storeName is how long the name of a module's directory is: hexadecimal digits.
const storeName = 32

// openStore checks the cache's directory, and makes it if need be. An error is a
// *probe.FieldError.
func openStore(c Config, module []byte) (*store, error) {
	if c.CacheDir == "" {
		return &store{}, nil
	}
	if err := os.MkdirAll(c.CacheDir, 0o700); err != nil {
		return nil, field("cache_dir", "cannot be made: %v", err)
	}
	if err := checkPrivate(c.CacheDir); err != nil {
		return nil, field("cache_dir", "cannot be used: %v", err)
	}
	sum := sha256.Sum256(module)
	s := &store{root: c.CacheDir, dir: filepath.Join(c.CacheDir, hex.EncodeToString(sum[:])[:storeName]), size: c.CacheSize}
	s.files, _ = usage(s.dir)
	return s, nil
}

// open returns the cache for the compiler, or nil.
func (s *store) open() wazero.CompilationCache {
	if s.dir == "" {
		return nil
	}
	cache, err := wazero.NewCompilationCacheWithDir(s.dir)
	if err != nil {
		return nil // it is only slower without
	}
	return cache
}

// discard removes what is kept of the module.
func (s *store) discard() {
	_ = os.RemoveAll(s.dir) // what stays is found broken again
	s.files = 0
}

// finish notes whether there was compiled code, and removes what was used longest ago
// until the rest is within bounds.
func (s *store) finish() {
	if s.dir == "" {
		return
	}
	files, _ := usage(s.dir)
	s.hit = files > 0 && files == s.files
	now := time.Now()
	_ = os.Chtimes(s.dir, now, now) // it may not be there
	s.evict()
}

type stored struct {
	dir  string
	size int64
	used time.Time
}

func (s *store) evict() {
	entries, err := os.ReadDir(s.root)
	if err != nil {
		return
	}
	var all []stored
	total := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if _, hexErr := hex.DecodeString(e.Name()); err != nil || hexErr != nil || len(e.Name()) != storeName || !e.IsDir() {
			continue
		}
		dir := filepath.Join(s.root, e.Name())
		_, size := usage(dir)
		total += size
		if dir != s.dir {
			all = append(all, stored{dir, size, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b stored) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.dir, b.dir)) })
	for _, old := range all {
		if total <= s.size {
			return
		}
		_ = os.RemoveAll(old.dir) // the next one tries again
		total -= old.size
	}
}

// usage returns how many files there are below a directory, and their length
// together.
func usage(dir string) (files int, size int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // what cannot be seen does not count
		}
		if info, err := d.Info(); err == nil {
			files++
			size += info.Size()
		}
		return nil
	})
	return files, size
}
