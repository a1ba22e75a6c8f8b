// Package tier selects the tests of a tier. The tiers are those of CONTRIBUTING.md: make check, make test, .ci/run and make long. A
// test belongs to make test, which is also what `go test` runs, unless it calls CI, Needs or Long.
//
// A tier includes the tests of the previous tiers. With -short, as in make check, tests skip parts that take seconds.
package tier

import (
	"cmp"
	"flag"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Variable is the environment variable that selects a tier: "ci" or "long". Without it,
// tests run as in make test.
const Variable = "SONDE_TIER"

// Values of Variable.
const (
	ciTier   = "ci"
	longTier = "long"
)

// Marker begins the reason of each test that is skipped because it belongs to another tier.
const Marker = "runs only in "

func init() {
	if name := os.Getenv(Variable); name != "" && name != ciTier && name != longTier {
		panic(Variable + " is " + strconv.Quote(name) + ": make it ci or long, or leave it out for the tests of make test")
	}
}

// InCI reports whether the tests of .ci/run run.
func InCI() bool { return os.Getenv(Variable) == ciTier || IsLong() }

// IsLong reports whether the tests of make long run.
func IsLong() bool { return os.Getenv(Variable) == longTier }

// Pick returns the amount for a test in make test, in .ci/run or in make long. With the race detector, which makes a test several
// times slower, .ci/run uses the amount of make test.
func Pick[T any](test, ci, long T) T {
	switch {
	case IsLong():
		return long
	case InCI() && !Race:
		return ci
	}
	return test
}

// Flag defines an integer flag. It returns a function that returns the flag's value, or the result of Pick if that is 0. Call that
// function in a test: go test caches results by the variables that running tests read, not by those that package initialization
// reads.
func Flag(name string, test, ci, long int, usage string) func() int {
	n := flag.Int(name, 0, usage+" (0: as many as the tier has)")
	return func() int { return cmp.Or(*n, Pick(test, ci, long)) }
}

// CI skips a test that belongs to .ci/run, such as a slow one, in make test.
func CI(t testing.TB) {
	t.Helper()
	if !InCI() {
		t.Skip(Marker + ".ci/run")
	}
}

// Long skips a test that belongs to make long in other tiers.
func Long(t testing.TB) {
	t.Helper()
	if !IsLong() {
		t.Skip(Marker + "make long")
	}
}

// NoRace skips a test with the race detector if that would make it slow: one that computes much on few goroutines. In addition to
// its run with the race detector, .ci/run runs these tests without it. The call must be the first or second statement of a test.
func NoRace(t testing.TB) {
	t.Helper()
	if Race {
		t.Skip(Marker + "a run without the race detector")
	}
}

// Needs is CI for a test that runs programs that .ci/run installs: a missing one is an error there.
func Needs(t testing.TB, programs ...string) {
	t.Helper()
	CI(t)
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			Lacks(t, program+" is not installed")
		}
	}
}

// Lacks ends a test of .ci/run that this machine cannot run. The test fails for root, for whom .ci/run installs and permits
// everything, and is skipped otherwise.
func Lacks(t testing.TB, what string) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Fatalf("%s: .ci/run installs what tests need", what)
	}
	t.Skip(what)
}

// Slow skips a test that takes more than a few tenths of a second with -short, as in make check.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip(Marker + "make test")
	}
}

// Reason returns why a test was skipped, from its output with -test.v: the text of the last line that it logged, or of a script's
// skip command. It returns "" if there is neither.
func Reason(output string) (reason string) {
	for line := range strings.Lines(output) {
		place, text, found := strings.Cut(strings.TrimSpace(line), ": ")
		_, command, isCommand := strings.Cut(line, "] skip ")
		switch {
		case isCommand:
			return strings.Trim(strings.TrimSpace(command), "'")
		case found && strings.Contains(place, ".go:"):
			reason = text
		}
	}
	return reason
}
