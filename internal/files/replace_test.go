package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReplaceReplacesTheWholeFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	for _, text := range []string{"a long text", "short"} {
		if err := Replace(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("the file has %q, %v, want %q", got, err, text)
		}
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}

// The same failure has the same text each time, which names what the caller knows.
func TestAFailedReplaceNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "not empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing", "file")
	for name, want := range map[string]string{
		missing: "write " + missing + ": create a file in " + filepath.Dir(missing) + ": no such file or directory",
		full:    "write " + full + ": file exists",
	} {
		if err := Replace(name, nil, 0o644); err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	if err := Replace(missing, nil, 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error is %#v", err)
	}
}

func TestAFailedReplaceLeavesNoTemporaryFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "sub")
	if err := os.MkdirAll(filepath.Join(name, "not empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Replace(name, []byte("text"), 0o644); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, %v", left, err)
	}
}
