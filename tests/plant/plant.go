// Package plant builds tests and programs with a fault in the product, so that a suite can show which faults it detects.
package plant

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// Source returns the path of the fault's file in the repository at root, and its text with the fault. The test fails if the fault
// does not match the file.
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

// Build builds the tests of a package in the repository at root with the fault, and returns the binary. See Overlay for its
// overlay.
func (f Fault) Build(t *testing.T, root, pkg string) (binary string) {
	t.Helper()
	return f.build(t, root, "suite.test", "test", "-c", "-ldflags=-s -w", "-vet=off", pkg)
}

// Program builds a program of the repository at root with the fault, and returns its path.
func (f Fault) Program(t *testing.T, root, pkg string) (binary string) {
	t.Helper()
	return f.build(t, root, "program", "build", "-C", root, pkg)
}

// build runs a go command, whose last word is a package, with the fault.
func (f Fault) build(t *testing.T, root, name string, words ...string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	path, text := f.Source(t, root)
	faulty, binary := filepath.Join(dir, "faulty.go"), filepath.Join(dir, name)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: faulty}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{faulty: []byte(text), Overlay(binary): overlay} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	last := len(words) - 1
	words = append(slices.Clone(words[:last]), "-overlay", Overlay(binary), "-o", binary, words[last])
	if out, err := exec.Command("go", words...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", f.Name, err, out)
	}
	return binary
}

// Overlay returns the path of the overlay with which a binary was built.
func Overlay(binary string) string { return filepath.Join(filepath.Dir(binary), "overlay.json") }
