package config

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

// golden compares a text with a golden file, or writes the file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is out of date (run the test with -rewrite and review the diff):\n%s", path, got)
	}
}

// configurations returns the HCL files of a folder as sources.
func configurations(t testing.TB, pattern string) []Source {
	t.Helper()
	var out []Source
	for _, suffix := range []string{".hcl", ".hcl.json"} {
		paths, err := filepath.Glob(pattern + suffix)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, Source{filepath.ToSlash(p), b})
		}
	}
	return out
}

func TestErrorsShowWhereTheyAreAndHowToFixThem(t *testing.T) {
	for _, s := range configurations(t, "testdata/bad/*") {
		t.Run(filepath.Base(s.Name), func(t *testing.T) {
			_, diags := Parse([]Source{s}, testOptions())
			if len(diags) == 0 {
				t.Error("there are no diagnostics")
			}
			var text bytes.Buffer
			if err := diags.WriteText(&text, false); err != nil {
				t.Fatal(err)
			}
			dir, err := os.Getwd()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, s.Name+".golden", strings.ReplaceAll(text.String(), dir, "/DIR"))
			if strings.Contains(text.String(), "hunter") {
				t.Error("a sensitive value was shown")
			}
		})
	}
}
