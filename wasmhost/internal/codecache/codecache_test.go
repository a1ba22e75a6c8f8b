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
