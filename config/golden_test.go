package config

import (
	"bytes"
	"flag"
	"github.com/sonde-probe/sonde/tests/golden"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

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
			golden.Check(t, s.Name+".golden", strings.ReplaceAll(text.String(), dir, "/DIR"), *rewrite)
			if strings.Contains(text.String(), "hunter") {
				t.Error("a sensitive value was shown")
			}
		})
	}
}
