package codecache

import (
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

func TestAHitIsCodeForThisCompiler(t *testing.T) {
	root := filepath.Join(t.TempDir(), "cache")
	open := func(module string) *Entry {
		t.Helper()
		e, err := Open(root, 1<<20, []byte(module))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	dir := filepath.Join(open("a").Dir(), "wazero")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		file string
		hit  bool
	}{{"code.123.tmp", false}, {"code", true}} {
		if err := os.WriteFile(filepath.Join(dir, step.file), []byte("code"), 0o600); err != nil {
			t.Fatal(err)
		}
		if open("a").Hit() != step.hit || open("b").Hit() {
			t.Errorf("with %s, the hit of its module is not %v, or another module has one", step.file, step.hit)
		}
	}
	if name := target(); !strings.Contains(name, "wazero-") {
		t.Errorf("the compiler and the processor are called %q", name)
	}
	e := open("a")
	if e.Discard(); e.Hit() || open("a").Hit() {
		t.Error("there is a hit after Discard")
	}
}

func TestATemporaryEntryIsPrivateAndRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	e, err := Open("", 0, nil)
	if err != nil || e.Dir() != "" || e.Temporary() {
		t.Fatalf("without a directory: %+v, %v", e, err)
	}
	if err := e.UseTemporary(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(e.Dir()); err != nil || info.Mode().Perm() != 0o700 || !e.Temporary() {
		t.Errorf("got %v, %v", info, err)
	}
	e.Finish()
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
