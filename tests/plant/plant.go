// Package plant builds tests against the product with a fault in it, so that a suite can
// show which faults it finds.
package plant

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Fault is a text that occurs once in a file of the product, and its replacement.
type Fault struct {
	Name string
	File string // from the root of the repository
	Old  string
	New  string
}

// Source returns the path of the fault's file in the repository at root, and its text with
// the fault. The test fails if the fault does not match the file.
func (f Fault) Source(t *testing.T, root string) (path, faulty string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, f.File))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), f.Old); n != 1 {
		t.Errorf("%s: %q stands %d times in %s, want once", f.Name, f.Old, n, f.File)
	}
	return path, strings.Replace(string(source), f.Old, f.New, 1)
}

// Build builds the tests of a package against the repository at root with the fault, and
// returns the binary. Overlay has its overlay.
func (f Fault) Build(t *testing.T, root, pkg string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	path, text := f.Source(t, root)
	faulty, binary := filepath.Join(dir, "faulty.go"), filepath.Join(dir, "suite.test")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: faulty}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{faulty: []byte(text), Overlay(binary): overlay} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-vet=off", "-overlay", Overlay(binary), "-o", binary, pkg)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", f.Name, err, out)
	}
	return binary
}

// Overlay returns the path of the overlay with which a binary was built.
func Overlay(binary string) string { return filepath.Join(filepath.Dir(binary), "overlay.json") }
