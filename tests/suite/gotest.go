package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/tests/tier"
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

// report prints the events of go test as lines, and keeps what the end of the tier shows.
type report struct {
	w       io.Writer
	ended   []ended
	skipped map[string]int // tests, by reason
}

// ended is a package whose tests have ended.
type ended struct {
	took time.Duration
	line string // as go test prints it
}

// slowest is how many packages are shown at the end.
const slowest = 10

// read prints the events of go test until they end.
func (r *report) read(events io.Reader) {
	outputs := map[[2]string]*strings.Builder{} // of tests that have not ended, by package and name
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(r.w, lines.Text())
			continue
		}
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "build-output":
			fmt.Fprint(r.w, e.Output)
		case "output":
			if outputs[key] == nil {
				outputs[key] = &strings.Builder{}
			}
			outputs[key].WriteString(e.Output)
		case "pass", "fail", "skip":
			r.end(e, outputs)
			delete(outputs, key)
		}
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(r.w, "go test:", err)
		_, _ = io.Copy(io.Discard, events)
	}
}

// end prints a package that has ended, with the output of its tests that have failed.
func (r *report) end(e event, outputs map[[2]string]*strings.Builder) {
	output := ""
	if b := outputs[[2]string{e.Package, e.Test}]; b != nil {
		output = b.String()
	}
	switch {
	case e.Test != "" && e.Action == "skip":
		r.skip(output)
	case e.Test != "" && e.Action == "fail":
		fmt.Fprint(r.w, output)
	case e.Test == "" && e.Action == "pass":
		r.pass(e, output)
	case e.Test == "" && e.Action == "fail":
		for key, b := range outputs { // tests that ran when the program of the tests ended
			if key[0] == e.Package && key[1] != "" {
				fmt.Fprint(r.w, b.String())
			}
		}
		fmt.Fprint(r.w, output)
	}
}

// pass prints the last line of a package that has passed, which says how long that took.
func (r *report) pass(e event, output string) {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "ok  \t") {
			r.ended = append(r.ended, ended{time.Duration(e.Elapsed * float64(time.Second)), line})
			fmt.Fprint(r.w, line)
		}
	}
}

// skip counts a test that was skipped, but not for its tier.
func (r *report) skip(output string) {
	if strings.Contains(output, tier.Marker) {
		return
	}
	if r.skipped == nil {
		r.skipped = map[string]int{}
	}
	r.skipped[cmp.Or(tier.Reason(output), "no reason")]++
}

// sumUp prints what was skipped and the packages that took longest, the slowest one last.
func (r *report) sumUp() {
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(r.w, "skipped %d: %s\n", r.skipped[reason], reason)
	}
	slices.SortFunc(r.ended, func(a, b ended) int { return cmp.Compare(a.took, b.took) })
	if len(r.ended) > 0 {
		fmt.Fprintf(r.w, "--- %d packages have passed; the slowest:\n", len(r.ended))
	}
	for _, e := range r.ended[max(0, len(r.ended)-slowest):] {
		fmt.Fprint(r.w, e.line)
	}
}
