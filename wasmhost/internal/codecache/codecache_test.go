package codecache

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// open opens an entry, and fails the test if it cannot.
func open(t *testing.T, root, module string, maxSize int64) *Entry {
	t.Helper()
	e, err := Open(root, maxSize, []byte(module))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// keep stores code for a module, last used the given number of hours ago.
func keep(t *testing.T, root, module, code string, hours time.Duration) {
	t.Helper()
	e := open(t, root, module, 1<<20)
	if err := e.Store(strings.NewReader(code)); err != nil {
		t.Fatal(err)
	}
	e.Close()
	used := time.Now().Add(-hours * time.Hour)
	if err := os.Chtimes(filepath.Join(root, e.name), used, used); err != nil {
		t.Fatal(err)
	}
}

// codeOf returns the code of an entry, or "" if there is none.
func codeOf(t *testing.T, e *Entry) string {
	t.Helper()
	f := e.Code()
	if f == nil {
		return ""
	}
	defer f.Close()
	code, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return string(code)
}

func wantCode(t *testing.T, root string, want map[string]string) {
	t.Helper()
	for module, code := range want {
		e := open(t, root, module, 1<<20)
		if got := codeOf(t, e); got != code {
			t.Errorf("module %s has the code %q, want %q", module, got, code)
		}
		e.Close()
	}
}

func TestTheLeastRecentlyUsedEntryIsRemovedFirst(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cache")
	code := strings.Repeat("x", 100)
	for i, module := range []string{"a", "b", "c"} {
		keep(t, root, module, code, time.Duration(9-i))
	}
	others := []string{filepath.Join(root, "unrelated"), filepath.Join(root, "FRESH"+partial), filepath.Join(root, "LEFT"+partial)}
	for _, name := range others {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left := time.Now().Add(-2 * maxWriting)
	if err := os.Chtimes(others[2], left, left); err != nil {
		t.Fatal(err)
	}
	open(t, root, "a", 2*(100+sumSize)+50).Close() // marks it as used now
	wantCode(t, root, map[string]string{"a": code, "b": "", "c": code})
	kept, _ := filepath.Glob(filepath.Join(root, "*"))
	if !slices.Contains(kept, others[0]) || !slices.Contains(kept, others[1]) || slices.Contains(kept, others[2]) {
		t.Errorf("the cache has %q", kept)
	}
}

func TestCodeIsKept(t *testing.T) {
	root := filepath.Join(t.TempDir(), "[a]", "cache") // not a pattern
	a, again, b := open(t, root, "a", 1<<20), open(t, root, "a", 1<<20), open(t, root, "b", 1<<20)
	for _, code := range []string{"first", "second"} {
		if err := a.Store(strings.NewReader(code)); err != nil {
			t.Fatal(err)
		}
		if got, other, none := codeOf(t, a), codeOf(t, again), codeOf(t, b); got != code || other != code || none != "" {
			t.Errorf("got %q, %q and %q", got, other, none)
		}
		a, again = again, a
	}
	again.Discard()
	if got := codeOf(t, a); got != "" {
		t.Errorf("after Discard: %q", got)
	}
	for _, e := range []*Entry{a, again, b} {
		e.Close()
	}
}

// Another plugin may replace, remove or evict code that is about to be loaded.
func TestCodeThatIsBeingReadStays(t *testing.T) {
	for name, disturb := range map[string]func(root string){
		"replaced": func(root string) { keep(t, root, "a", "other", 0) },
		"removed":  func(root string) { e := open(t, root, "a", 1<<20); e.Discard(); e.Close() },
		"evicted":  func(root string) { open(t, root, "b", 0).Close() },
	} {
		root := filepath.Join(t.TempDir(), "cache")
		keep(t, root, "a", "code", 0)
		e := open(t, root, "a", 1<<20)
		f := e.Code()
		disturb(root)
		if code, err := io.ReadAll(f); string(code) != "code" || err != nil {
			t.Errorf("%s: got %q, %v", name, code, err)
		}
		if other := codeOf(t, e); other == "code" {
			t.Errorf("%s: it has its name", name)
		}
		f.Close()
		e.Close()
	}
}

func TestCodeThatCannotBeWrittenLeavesTheFormer(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cache")
	keep(t, root, "a", "former", 0)
	e := open(t, root, "a", 1<<20)
	defer e.Close()
	full := errors.New("no space left")
	if err := e.Store(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(full))); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	if files, _ := os.ReadDir(root); codeOf(t, e) != "former" || len(files) != 2 { // including the secret
		t.Errorf("the cache has %q in %v", codeOf(t, e), files)
	}
}

// Code is tied to its module by more than the name of its file.
func TestCodeOfAnotherModuleIsNotUsed(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	other := filepath.Join(t.TempDir(), "other")
	file := func(root, module string) string {
		e := open(t, root, module, 1<<20)
		defer e.Close()
		return filepath.Join(root, e.name)
	}
	copied := func(from string) func() error {
		return func() error {
			text, err := os.ReadFile(from)
			return errors.Join(err, os.WriteFile(file(cache, "a"), text, 0o600))
		}
	}
	for name, disturb := range map[string]func() error{
		"of another module":      copied(file(cache, "b")),
		"from another directory": copied(file(other, "a")),
		"changed": func() error {
			return os.WriteFile(file(cache, "a"), []byte(strings.Repeat("x", sumSize)+"code"), 0o600)
		},
		"cut":                    func() error { return os.Truncate(file(cache, "a"), sumSize-1) },
		"of an earlier version":  func() error { return os.WriteFile(file(cache, "a"), []byte("code"), 0o600) },
		"under another secret":   func() error { return os.WriteFile(filepath.Join(cache, secretFile), make([]byte, sumSize), 0o600) },
		"under a damaged secret": func() error { return os.Truncate(filepath.Join(cache, secretFile), 1) },
		"under a public secret":  func() error { return os.Chmod(filepath.Join(cache, secretFile), 0o644) },
		"in a file of others":    func() error { return os.Chmod(file(cache, "a"), 0o622) },
	} {
		for _, root := range []string{cache, other} {
			keep(t, root, "a", "code", 0)
			keep(t, root, "b", "other code", 0)
		}
		wantCode(t, cache, map[string]string{"a": "code", "b": "other code"})
		if err := disturb(); err != nil {
			t.Fatal(err)
		}
		e := open(t, cache, "a", 1<<20)
		if got := codeOf(t, e); got != "" {
			t.Errorf("code %s is used: %q", name, got)
		}
		if err := e.Store(strings.NewReader("new")); err != nil || codeOf(t, e) != "new" {
			t.Errorf("after code %s: got %q, %v", name, codeOf(t, e), err)
		}
		e.Close()
	}
}

func TestWithoutACacheNothingIsKept(t *testing.T) {
	e := open(t, "", "a", 0)
	if err := e.Store(strings.NewReader("code")); err != nil || codeOf(t, e) != "" {
		t.Errorf("got %q, %v", codeOf(t, e), err)
	}
	e.Discard()
	e.Close()
}
