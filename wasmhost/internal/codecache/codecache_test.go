package codecache

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheLeastRecentlyUsedEntryIsRemovedFirst(t *testing.T) {
	root := t.TempDir()
	dir := func(digit string) string { return filepath.Join(root, strings.Repeat(digit, nameLength)) }
	for i, digit := range []string{"a", "b", "c"} {
		if err := os.Mkdir(dir(digit), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir(digit), "code"), make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		used := time.Unix(int64(1000+i), 0)
		if err := os.Chtimes(dir(digit), used, used); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(root, "unrelated")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	e := Entry{root: root, dir: dir("a"), maxSize: 250}
	e.Finish() // a was used now
	for path, want := range map[string]bool{dir("a"): true, dir("b"): false, dir("c"): true, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}

// open opens an entry, and fails the test if it cannot.
func open(t *testing.T, root, module string) *Entry {
	t.Helper()
	e, err := Open(root, 1<<20, []byte(module))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// compile writes code as wazero does, where the entry has said.
func compile(t *testing.T, e *Entry, name string) {
	t.Helper()
	dir, err := e.MakeTemporary()
	if err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(dir, "wazero-v1")
	if err := os.Mkdir(version, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(version, name), []byte("code"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCodeIsKeptWhenItIsComplete(t *testing.T) {
	root := filepath.Join(t.TempDir(), `cache [a-z]\*?`) // not a pattern
	a, again, b := open(t, root, "a"), open(t, root, "a"), open(t, root, "b")
	compile(t, a, "code")
	if a.HasCode() {
		t.Error("there is code before it is kept")
	}
	compile(t, again, "code") // at the same time
	for range 2 {
		if err := a.Keep(); err != nil {
			t.Fatal(err)
		}
		a.Finish()
		if !a.HasCode() || !open(t, root, "a").HasCode() || b.HasCode() {
			t.Error("the module has no code, or another one has")
		}
		a = again
	}
	files, err := fs.Glob(os.DirFS(root), "*/*/*")
	if err != nil || len(files) != 1 || filepath.Join(root, filepath.Dir(filepath.Dir(files[0]))) != a.Dir() {
		t.Errorf("the cache has %q, %v", files, err)
	}
	a.Discard()
	if a.HasCode() {
		t.Error("there is code after Discard")
	}
}

func TestWithoutACacheNothingIsKept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	root := filepath.Join(t.TempDir(), "cache")
	disabled := open(t, root, "a")
	disabled.Disable()
	for _, e := range []*Entry{open(t, "", ""), disabled} {
		compile(t, e, "code")
		if info, err := os.Stat(e.temp.dir); err != nil || info.Mode().Perm() != 0o700 || filepath.Dir(e.temp.dir) != os.TempDir() {
			t.Errorf("compiled in %s: %v, %v", e.temp.dir, info, err)
		}
		if err := e.Keep(); err != nil || e.Dir() != "" || e.Enabled() || e.HasCode() {
			t.Errorf("got %+v, %v", e, err)
		}
		e.Finish()
	}
	for _, dir := range []string{root, os.TempDir()} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}

func TestAMissingDirectoryIsAnError(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
	if dir, err := open(t, "", "").MakeTemporary(); err == nil {
		t.Errorf("got %s", dir)
	}
}

// What a killed process has left is removed, and nothing else.
func TestDirectoriesOfKilledProcessesAreRemoved(t *testing.T) {
	root := t.TempDir()
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	e := open(t, root, "a")
	compile(t, e, "code")
	left, unrelated, open := filepath.Join(root, temporaryPrefix+"1"), filepath.Join(root, "other-1"), filepath.Join(root, temporaryPrefix+"2")
	for dir, mode := range map[string]os.FileMode{left: 0o700, unrelated: 0o700, open: 0o755} {
		if err := os.Mkdir(dir, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(left, "code"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(root, temporaryPrefix+"link")
	if err := os.Symlink(unrelated, link); err != nil {
		t.Fatal(err)
	}
	removeAbandoned(root)
	for path, want := range map[string]bool{left: false, unrelated: true, open: true, link: true, e.temp.dir: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}
