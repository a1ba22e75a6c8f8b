package handlers

import (
	"bytes"
	"flag"
	"github.com/spf13/cobra"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/tests/golden"
	"github.com/sonde-probe/sonde/tests/tier"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

// operatorFiles contains configurations as written by people who know other tools, and damaged files, each with the expected
// diagnostics.
const operatorFiles = "../../../../config/testdata/operator"

func TestOperatorsMistakesAreAnswered(t *testing.T) {
	tier.Slow(t)
	t.Chdir(operatorFiles)
	var names []string
	for _, pattern := range []string{"*.hcl", "*.hcl.json"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	if len(names) < 80 {
		t.Fatalf("there are %d configurations", len(names))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			got := answer(t, name)
			golden.Check(t, name+".golden", got, *rewrite)
		})
	}
}

// answer returns the diagnostics of a file in the format of sonde validate.
func answer(t *testing.T, name string) string {
	in := Inputs{LookUp: true}
	_, diags := in.Load(&cobra.Command{}, []string{name}, NewPlugins(t.Context(), WaitForNone, Silent))
	if len(diags) == 0 {
		t.Error("there are no diagnostics")
	}
	var text bytes.Buffer
	if err := diags.WriteText(&text, false); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "hunter2-") || strings.Contains(name, "sensitive") && strings.Contains(text.String(), "hunter2") {
		t.Error("a sensitive value was shown")
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(machine(), "machine HOST", dir, "/DIR").Replace(text.String())
}
