package oracle

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fault is a mistake that is planted into the product: a text that stands once in
// a file, and what stands there instead.
type fault struct {
	name string
	file string
	old  string
	new  string
}

var faults = []fault{
	{"one failure too many", "engine/verdict/verdict.go", "return s.Run >= r.FailureThreshold", "return s.Run > r.FailureThreshold"},
	{"one failure too few", "engine/verdict/verdict.go", "return s.Run >= r.FailureThreshold", "return s.Run >= r.FailureThreshold-1"},
	{"one success too many", "engine/verdict/verdict.go", "return s.Run >= r.SuccessThreshold", "return s.Run > r.SuccessThreshold"},
	{"a hold that is never lifted", "engine/verdict/verdict.go", "*s = State{Instance: in.ID, Verdict: Initial(r.Kind)}", "*s = State{Instance: in.ID, Verdict: Initial(r.Kind), OnHold: old.OnHold}"},
	{"no hold", "engine/verdict/verdict.go", "s.OnHold, s.Run = true, 0", "s.Run = 0"},
	{"a run that is not reset by a hold", "engine/verdict/verdict.go", "s.OnHold, s.Run = true, 0", "s.OnHold = true"},
	{"a run that another outcome does not end", "engine/verdict/verdict.go", "s.Last, s.Run = o, 0", "s.Last = o"},
	{"a run that ends with the life", "engine/verdict/verdict.go", "s.Last, s.Run, s.Errors = old.Last, old.Run, old.Errors", "_ = old"},
	{"readiness that begins as passing", "engine/verdict/verdict.go", "case probe.Readiness:\n\t\treturn probe.Failing", "case probe.Readiness:\n\t\treturn probe.Passing"},
	{"liveness that begins as undecided", "engine/verdict/verdict.go", "case probe.Liveness:\n\t\treturn probe.Passing", "case probe.Liveness:\n\t\treturn probe.Undecided"},
	{"readiness before the start", "engine/verdict/verdict.go", "case r.Kind != probe.Startup && !e.Started:", "case r.Kind == probe.Liveness && !e.Started:"},
	{"an error that counts", "engine/verdict/verdict.go", "if r.OnError == probe.ErrorIgnored {", "if r.OnError != probe.ErrorIgnored {"},
	{"two tries", "engine/attempt.go", "const maxTries = 3", "const maxTries = 2"},
	{"a delay that is not kept", "engine/verdict/verdict.go", "case now.Before(begin):", "case now.Before(begin) && r.Kind == probe.Readiness:"},
}

// TestPlantedFaultsAreFound builds this package against a product with a fault in
// it, for each fault, and wants the regression scripts to fail.
func TestPlantedFaultsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the oracle once for each fault; run without -short")
	}
	const atOnce = 5
	room := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	defer running.Wait()
	for _, f := range faults {
		binary := f.build(t)
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			out, err := exec.CommandContext(t.Context(), binary, "-test.run=^TestRegressions$", "-trials=2", "-shrink=false").CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL: TestRegressions")) {
				t.Errorf("%s is not found: %v\n%s", f.name, err, out)
				return
			}
			t.Logf("%s is found:%s", f.name, firstLines(out))
		})
	}
}

// build builds the tests of this package with a fault, and returns the binary.
func (f fault) build(t *testing.T) string {
	dir := t.TempDir()
	file, err := filepath.Abs(filepath.Join("..", "..", f.file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), f.old); n != 1 {
		t.Fatalf("%s: %q stands %d times in %s, want once", f.name, f.old, n, f.file)
	}
	faulty := filepath.Join(dir, "faulty.go")
	write(t, faulty, []byte(strings.Replace(string(source), f.old, f.new, 1)))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: faulty}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), overlay)
	binary := filepath.Join(dir, "oracle.test")
	build := exec.Command("go", "test", "-c", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", f.name, err, out)
	}
	return binary
}

func write(t *testing.T, file string, text []byte) {
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// firstLines returns the first difference in a test's output.
func firstLines(out []byte) string {
	_, found, _ := strings.Cut(string(out), "seen in trial 1:")
	lines := strings.SplitN(found, "\n", 4)
	return strings.Join(lines[:min(3, len(lines))], "\n")
}
