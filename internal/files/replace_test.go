package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// The same failure has the same text each time, and names the file known to the caller.
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

// A program that was killed while writing leaves its temporary file behind.
func TestTemporaryFilesOfAKilledProgramAreRemoved(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	kept := []string{".file.", ".file.swp", ".other.1", "file", "file.1", "link"}
	for _, one := range append([]string{".file.123", ".file.4"}, kept...) {
		if one == "link" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, one), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Symlink(name, link), RemoveTemporary(link)); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if err != nil || !slices.Equal(left, kept) {
		t.Errorf("the directory has %q, %v, want %q", left, err, kept)
	}
	if f, err := os.CreateTemp(dir, temporaryPrefix(name)+"*"); err != nil || f.Close() != nil || RemoveTemporary(name) != nil {
		t.Error(err)
	} else if _, err := os.Stat(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s was left: %v", f.Name(), err)
	}
}
