package journal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/faulttest"
)

// TestAFullDiskLosesNothing fills its own small file system.
func TestAFullDiskLosesNothing(t *testing.T) {
	if !faulttest.InNamespaces(t) {
		return
	}
	dir := t.TempDir()
	faulttest.SmallDisk(t, dir, "size=256k")
	fill(t, filepath.Join(dir, "state"))
}

// fill appends until there is no space, and continues when there is space again.
func fill(t *testing.T, name string) {
	hog := name + ".hog"
	j, err := Open(name, magic)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = j.Close() }()
	_, err = j.Read(func([]byte) error { return nil })
	entry := strings.Repeat("x", 10_000)
	written := []string{"first"}
	err = errors.Join(err, j.Rewrite(contents(written...)), os.WriteFile(hog, make([]byte, 100<<10), 0o600))
	for err == nil {
		if err = j.Append(contents(entry, entry)); err == nil {
			written = append(written, entry, entry)
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want no space", err)
	}
	if err := j.Rewrite(contents(written...)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("rewriting: got %v, want no space", err)
	}
	if _, err := os.Stat(name + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed rewrite leaves its file: %v", err)
	}
	checkFrames(t, name, written)
	if err := errors.Join(os.Remove(hog), j.Append(contents("last"))); err != nil {
		t.Errorf("with space again: %v", err)
	}
	checkFrames(t, name, append(written, "last"))
}

// checkFrames reads a copy of a file.
func checkFrames(t *testing.T, name string, want []string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	copied := path(t)
	if err := os.WriteFile(copied, b, 0o600); err != nil {
		t.Error(err)
		return
	}
	j, err := Open(copied, magic)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = j.Close() }()
	var got []string
	unfinished, err := j.Read(func(b []byte) error { got = append(got, string(b)); return nil })
	if err != nil || unfinished != 0 || !slices.Equal(got, want) {
		t.Errorf("got %d frames, %d unfinished bytes and %v, want %d frames", len(got), unfinished, err, len(want))
	}
}
