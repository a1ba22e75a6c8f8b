package lab_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
)

// TestTheConfigurationsOfTheExamplesAreValid checks what stands beside the plugins in
// Go, as an operator would who has built one.
func TestTheConfigurationsOfTheExamplesAreValid(t *testing.T) {
	found, err := filepath.Glob("../../*/main.go")
	if err != nil || len(found) == 0 {
		t.Fatalf("no plugins: %v", err)
	}
	sonde := engine(t)
	for _, file := range found {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) { validate(t, sonde, dir) })
	}
}

// engine builds the command sonde.
func engine(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "sonde")
	c := exec.Command("go", "build", "-o", out, "./cmd/engine")
	c.Dir = "../../../.."
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/engine: %v\n%s", err, text)
	}
	return out
}

func validate(t *testing.T, sonde, dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "config.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	built := lab.Build(t, "./"+dir)
	name := filepath.Base(dir)
	if err := os.Rename(built, filepath.Join(filepath.Dir(built), name+".wasm")); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(filepath.Dir(built), "config.hcl")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"validate", config}, {"fmt", "--check", config}} {
		said, err := exec.Command(sonde, args...).CombinedOutput()
		if err != nil || strings.Contains(string(said), "warning") {
			t.Errorf("sonde %s: %v\n%s", args[0], err, said)
		}
	}
}
