package files

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesAreReadUpToTheMaximumSize(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, read := range []func(string, int64) ([]byte, error){Read, ReadRegular} {
		if got, err := read(name, 5); string(got) != "12345" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if got, err := read(name, 4); got != nil || !errors.Is(err, ErrTooLarge) {
			t.Errorf("above the maximum: got %q, %v", got, err)
		}
		if _, err := read(name+"x", 5); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a missing file: got %v", err)
		}
	}
}

func TestADirectoryIsNotARegularFile(t *testing.T) {
	if _, err := ReadRegular(t.TempDir(), 5); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got %v", err)
	}
}
