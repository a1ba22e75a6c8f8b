package oracle

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// fault is a bug that is planted into the product: a text that occurs once in a file,
// and its replacement.
type fault struct {
	name string
	file string
	old  string
	new  string
	main bool // is planted in a short run too
}

// faults are the bugs to plant, among them an off-by-one in a threshold, a hold that is
// never lifted, a run that is not reset, and a wrong initial verdict.
func faults() []fault {
	const judge = "engine/verdict/verdict.go"
	return []fault{
		{name: "one failure too many", file: judge, main: true,
			old: "return s.Run >= r.FailureThreshold", new: "return s.Run > r.FailureThreshold"},
		{name: "a hold that is never lifted", file: judge, main: true,
			old: "*s = State{Instance: in.ID, Verdict: Initial(r.Kind)}",
			new: "*s = State{Instance: in.ID, Verdict: Initial(r.Kind), OnHold: old.OnHold}"},
		{name: "a run that is not reset by a hold", file: judge, main: true,
			old: "s.OnHold, s.Run = true, 0", new: "s.OnHold = true"},
		{name: "readiness that begins as passing", file: judge, main: true,
			old: "case probe.Readiness:\n\t\treturn probe.Failing", new: "case probe.Readiness:\n\t\treturn probe.Passing"},
		{name: "one failure too few", file: judge,
			old: "return s.Run >= r.FailureThreshold", new: "return s.Run >= r.FailureThreshold-1"},
		{name: "one success too many", file: judge,
			old: "return s.Run >= r.SuccessThreshold", new: "return s.Run > r.SuccessThreshold"},
		{name: "no hold", file: judge,
			old: "s.OnHold, s.Run = true, 0", new: "s.Run = 0"},
		{name: "a run that another outcome does not end", file: judge,
			old: "s.Last, s.Run = o, 0", new: "s.Last = o"},
		{name: "a run that ends with the life", file: judge,
			old: "s.Last, s.Run, s.Errors = old.Last, old.Run, old.Errors", new: "_ = old"},
		{name: "a run that goes on in the next life by default", file: judge,
			old: "if r.Compatibility == probe.Kubelet {\n\t\ts.Last", new: "{\n\t\ts.Last"},
		{name: "liveness that begins as undecided", file: judge,
			old: "case probe.Liveness:\n\t\treturn probe.Passing", new: "case probe.Liveness:\n\t\treturn probe.Undecided"},
		{name: "readiness before the start", file: judge,
			old: "case r.Kind != probe.Startup && !e.Started:", new: "case r.Kind == probe.Liveness && !e.Started:"},
		{name: "an error that counts", file: judge,
			old: "if r.OnError == probe.ErrorIgnored {", new: "if r.OnError != probe.ErrorIgnored {"},
		{name: "a delay that is not kept", file: judge,
			old: "case now.Before(start):", new: "case now.Before(start) && r.Kind == probe.Readiness:"},
		{name: "two tries", file: "engine/attempt.go",
			old: "const maxTries = 3", new: "const maxTries = 2"},
		{name: "warnings that are not counted", file: "adapter/prom/kubelet.go",
			old: "p.Attempts[probe.Success] + p.Attempts[probe.Warning]", new: "p.Attempts[probe.Success]"},
		{name: "a pod deletion that is ignored", file: "adapter/kube/instances.go",
			old: "Terminating: pod.DeletionTimestamp != nil", new: "Terminating: false"},
		{name: "pods that are ready before they have started", file: "adapter/kube/status.go",
			old: "s.Ready = started && passing(", new: "s.Ready = passing("},
		{name: "an extra attempt whose failure counts", file: "engine/start.go", main: true,
			old: "Extra: !a.counts}", new: "Extra: false}"},
		{name: "liveness that is attempted at once", file: "engine/spec.go",
			old: "return wakes", new: "return wakes || true"},
		{name: "attempts at 1.3 times the period", file: "engine/internal/schedule/times.go",
			old: "Times{Period: int64(period),", new: "Times{Period: int64(period) * 13 / 10,"},
		{name: "attempts at twice the period", file: "engine/internal/schedule/times.go",
			old: "Times{Period: int64(period),", new: "Times{Period: 2 * int64(period),"},
		{name: "a wrong status in the detail", file: "builtin/http/judge.go",
			old: `return "status " + strconv.Itoa(status)`, new: `return "status " + strconv.Itoa(status/100*100)`},
	}
}

// TestPlantedFaultsAreFound builds this package for each fault against a product with
// the fault: the regression scripts must find it. A short run plants only a few faults,
// because each one takes a build.
func TestPlantedFaultsAreFound(t *testing.T) {
	binaries := map[fault]string{}
	for _, f := range faults() {
		if (f.main || !testing.Short()) && strings.Contains(f.name, *planted) {
			binaries[f] = f.build(t)
		}
	}
	t.Parallel() // from here on there is much to wait for and little to do
	const atOnce = 5
	room := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	var found atomic.Int64
	for f, binary := range binaries {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			if f.isFound(t, binary) {
				found.Add(1)
			}
		})
	}
	running.Wait()
	summarise("planted faults: %d, found: %d", len(binaries), found.Load())
}

// isFound plays the regression scripts against a product with a fault. They must fail
// because of a recurring difference, and for no other reason.
func (f fault) isFound(t *testing.T, binary string) bool {
	out, err := exec.CommandContext(t.Context(), binary, "-test.run=^TestRegressions$", "-trials=2", "-shrink=false").CombinedOutput()
	differs := bytes.Contains(out, []byte("--- FAIL: TestRegressions")) && bytes.Contains(out, []byte(confirmed))
	if err == nil || !differs {
		t.Errorf("%s is not found: %v\n%s", f.name, err, out)
		return false
	}
	t.Logf("%s is found:%s", f.name, firstLines(out))
	return true
}

// TestFaultsCanBePlanted checks that all faults match the current source, in a short
// run too.
func TestFaultsCanBePlanted(t *testing.T) {
	for _, f := range faults() {
		f.plant(t)
	}
}

// plant returns the file of the fault, and its text with the fault.
func (f fault) plant(t *testing.T) (file, faulty string) {
	file, err := filepath.Abs(filepath.Join("..", "..", f.file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), f.old); n != 1 {
		t.Errorf("%s: %q stands %d times in %s, want once", f.name, f.old, n, f.file)
	}
	return file, strings.Replace(string(source), f.old, f.new, 1)
}

// build builds the tests of this package with a fault, and returns the binary.
func (f fault) build(t *testing.T) string {
	dir := t.TempDir()
	file, text := f.plant(t)
	faulty := filepath.Join(dir, "faulty.go")
	write(t, faulty, []byte(text))
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
	_, found, _ := strings.Cut(string(out), confirmed)
	lines := strings.SplitN(found, "\n", 4)
	return strings.Join(lines[:min(3, len(lines))], "\n")
}
