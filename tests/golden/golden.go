// Package golden compares the output of a test with a reviewed file.
package golden

import (
	"os"
	"path/filepath"
	"testing"
)

// Check fails the test if got is not the content of a file. With rewrite, it first writes the file; the diff must then be reviewed.
func Check(t testing.TB, file, got string, rewrite bool) {
	t.Helper()
	if rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is out of date (run the test with -rewrite and review the diff): got\n%s\nwant\n%s", file, got, want)
	}
}
