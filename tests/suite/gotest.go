package main

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"regexp"
	"strings"
)

// event is an event of go test -json: see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// result is the result of a run of go test.
type result struct {
	failed  []string            // packages that have failed
	crashed []string            // those of failed in which the race detector has crashed
	tests   map[string][]string // failed tests by package
	broken  bool                // something else has failed: the build, a time limit, a data race, a panic
}

// hasDetectorCrashed reports whether a test program has crashed by a bug of the race detector: it counts a goroutine's events on
// two threads at the same time if timers of a synctest bubble expire there: golang/go#78156.
func hasDetectorCrashed(output string) bool {
	return detectorCrash.MatchString(output) && strings.Contains(output, "synctest") &&
		!strings.Contains(output, "DATA RACE") && !strings.Contains(output, "panic: ")
}

var detectorCrash = regexp.MustCompile(`(?m)ThreadSanitizer: CHECK failed|^SIGSEGV: segmentation violation|unexpected fault address`)

// stray matches errors that end a test program. go test may attribute them to a test that has passed: the last one whose output it
// has seen.
var stray = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: |WARNING: DATA RACE|ThreadSanitizer: |unexpected fault address)`)

// read prints the events of go test until they end. It prefixes the output of failed tests.
func (r *report) read(events io.Reader, prefix string) (all result) {
	all.tests = map[string][]string{}
	outputs := map[[2]string]*strings.Builder{} // of tests that have not finished, and with stray errors, by package and name
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			r.printf("%s\n", lines.Text())
			continue
		}
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "build-output":
			r.printf("%s", e.Output)
		case "output":
			if outputs[key] == nil {
				outputs[key] = &strings.Builder{}
			}
			outputs[key].WriteString(e.Output)
		case "pass", "fail", "skip":
			crashed := r.endTest(e, outputs, prefix)
			if e.Action == "fail" {
				all.fail(e, outputs)
			}
			if crashed {
				all.crashed = append(all.crashed, e.Package)
			}
			switch b := outputs[key]; {
			case e.Test == "":
				maps.DeleteFunc(outputs, func(key [2]string, _ *strings.Builder) bool { return key[0] == e.Package })
			case e.Action == "fail" || b == nil || !stray.MatchString(b.String()):
				delete(outputs, key)
			}
		}
	}
	if err := lines.Err(); err != nil {
		r.printf("go test: %v\n", err)
		_, _ = io.Copy(io.Discard, events)
	}
	return all
}

// fail records that a test or a package has failed.
func (all *result) fail(e event, outputs map[[2]string]*strings.Builder) {
	switch {
	case e.Test == "":
		all.failed = append(all.failed, e.Package)
		all.broken = all.broken || len(all.tests[e.Package]) == 0
	case !strings.Contains(e.Test, "/"):
		all.tests[e.Package] = append(all.tests[e.Package], e.Test)
	}
	for key, b := range outputs {
		all.broken = all.broken || key[0] == e.Package && stray.MatchString(b.String())
	}
}

// endTest prints a test that has failed, or a package that has finished, and reports whether the race detector has crashed in that
// package.
func (r *report) endTest(e event, outputs map[[2]string]*strings.Builder, prefix string) (crashed bool) {
	output := ""
	if b := outputs[[2]string{e.Package, e.Test}]; b != nil {
		output = b.String()
	}
	switch {
	case e.Test != "" && e.Action == "skip":
		r.skip(output)
	case e.Test != "" && e.Action == "fail":
		r.printf("%s", quote(prefix, "--- "+e.Package+"\n"+output))
		r.explain(e, output)
	case e.Test == "" && e.Action == "pass":
		r.pass(e, output)
	case e.Test == "" && e.Action == "fail":
		for key, b := range outputs { // tests that were running when the test program exited
			if key[0] == e.Package && key[1] != "" {
				r.printf("%s", quote(prefix, "--- "+e.Package+"\n"+b.String()))
				crashed = crashed || hasDetectorCrashed(b.String())
			}
		}
		r.fail(output, prefix)
	}
	return crashed
}

// quote prefixes each line of a text.
func quote(prefix, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(prefix + line)
	}
	return b.String()
}
