package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/tests/tier"
)

// report prints the output of steps that run concurrently, and keeps the data for the summary.
type report struct {
	mu      sync.Mutex // guards all below
	w       io.Writer
	failed  []string // names of failed steps
	fails   []string // last lines of failed packages
	reasons []string // "FAIL", package, test, and its first line
	retries []retry
	luck    []string // tests that have failed, and then passed alone
	ended   []ended
	skipped map[string]int // number of skipped tests, by reason
}

// ended is a package whose tests have finished.
type ended struct {
	took time.Duration
	line string // as go test prints it
}

// maxReason is how many bytes of an error, and maxReasons how many errors, are repeated at the end.
const (
	maxReason  = 200
	maxReasons = 20
)

// slowest is how many packages are listed at the end.
const slowest = 10

func (r *report) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.w.Write(b)
}

func (r *report) printf(format string, args ...any) { fmt.Fprintf(r, format, args...) }

func (r *report) hasFailed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failed) > 0
}

// endStep prints the result of a step, and the processor time of its command and descendants.
func (r *report) endStep(name string, err error, took, cpu time.Duration) {
	result := "done"
	if err != nil {
		result = "FAILED: " + err.Error()
		r.mu.Lock()
		r.failed = append(r.failed, name)
		r.mu.Unlock()
	}
	r.printf("    %s, %s (CPU %s): %s\n", name, took.Round(time.Second), cpu.Round(time.Second), result)
}

// pass prints the last line of a package that has passed, which has its duration.
func (r *report) pass(e event, output string) {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "ok  \t") {
			r.mu.Lock()
			r.ended = append(r.ended, ended{time.Duration(e.Elapsed * float64(time.Second)), line})
			r.mu.Unlock()
			r.printf("%s", line)
		}
	}
}

// fail prints the output of go test for a package that has failed, and keeps its last line.
func (r *report) fail(output, prefix string) {
	r.printf("%s", quote(prefix, output))
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "FAIL\t") {
			r.mu.Lock()
			r.fails = append(r.fails, line)
			r.mu.Unlock()
		}
	}
}

// firstLines match what explain keeps of a test, in the order of preference: the error of a script, which follows the script's log,
// and the first line of another test.
var firstLines = []*regexp.Regexp{
	regexp.MustCompile(`(?m)^\s*FAIL: (\S+:\d+: .*)$`),
	regexp.MustCompile(`(?m)^\s*(\S+\.go:\d+: .*)$`),
}

// explain keeps the script error of a failed test, or else the first line that it logged: go test does not mark errors. A test whose
// subtests have failed may have none.
func (r *report) explain(e event, output string) {
	for _, pattern := range firstLines {
		if found := pattern.FindStringSubmatch(output); found != nil {
			reason := strings.ToValidUTF8(found[1][:min(len(found[1]), maxReason)], "")
			r.mu.Lock()
			r.reasons = append(r.reasons, fmt.Sprintf("FAIL\t%s\t%s: %s\n", e.Package, e.Test, reason))
			r.mu.Unlock()
			return
		}
	}
}

// skip counts a skipped test, unless it belongs to another tier.
func (r *report) skip(output string) {
	if strings.Contains(output, tier.Marker) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.skipped == nil {
		r.skipped = map[string]int{}
	}
	r.skipped[cmp.Or(tier.Reason(output), "no reason")]++
}

// sumUp prints the skipped tests, the slowest packages, in ascending order, and the failed ones.
func (r *report) sumUp() {
	for _, reason := range slices.Sorted(maps.Keys(r.skipped)) {
		r.printf("skipped %d: %s\n", r.skipped[reason], reason)
	}
	slices.SortFunc(r.ended, func(a, b ended) int { return cmp.Compare(a.took, b.took) })
	if len(r.ended) > 0 {
		r.printf("--- %d packages have passed; the slowest:\n", len(r.ended))
	}
	for _, e := range r.ended[max(0, len(r.ended)-slowest):] {
		r.printf("%s", e.line)
	}
	if len(r.luck) > 0 {
		r.printf("--- %d tests have failed beside others, and passed alone; mend them: %s\n", len(r.luck), strings.Join(r.luck, ", "))
	}
	if len(r.fails) > 0 {
		r.printf("--- %d packages have failed:\n%s%s", len(r.fails), strings.Join(r.reasons[:min(len(r.reasons), maxReasons)], ""), strings.Join(r.fails, ""))
	}
}
