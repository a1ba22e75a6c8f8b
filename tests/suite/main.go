// Command suite runs a tier of the tests, or what changed since the last commit:
//
//	go run ./tests/suite check|test|lint|ci|long
//
// It prints each step by name, a line for each package as it ends, and at the end the ten
// slowest packages and what was skipped. It exits with 1 if a step has failed. The first
// step that fails ends check and test; the other tiers run all, and sum up.
//
//	main.go    the steps of a tier, one after another
//	tiers.go   the tables of steps
//	gotest.go  go test: its events, as lines
//	select.go  which packages a step tests: changed ones, and those that start goroutines
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 2 || tiers[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go run ./tests/suite check|test|lint|ci|long")
		os.Exit(2)
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // the commands end, and their step has failed
	if err := run(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the steps of a tier.
func run(w io.Writer, tier string) error {
	steps, err := tiers[tier]()
	if err != nil {
		return err
	}
	begin := time.Now()
	r := report{w: w}
	var failed []string
	for i, s := range steps {
		fmt.Fprintf(w, "--- %d/%d %s\n", i+1, len(steps), s.name)
		began := time.Now()
		err := s.run(&r)
		result := "done"
		if err != nil {
			result = "FAILED: " + err.Error()
			failed = append(failed, s.name)
		}
		fmt.Fprintf(w, "    %s, %s: %s\n", s.name, time.Since(began).Round(time.Second), result)
		if err != nil && (tier == "check" || tier == "test") {
			break
		}
	}
	r.sumUp()
	took := time.Since(begin).Round(time.Second)
	if len(failed) > 0 {
		return fmt.Errorf("make %s has failed after %s: %s", tier, took, strings.Join(failed, ", "))
	}
	fmt.Fprintf(w, "make %s has passed in %s\n", tier, took)
	return nil
}

// step is a command of a tier.
type step struct {
	name string
	dir  string   // from the root of the repository; empty: there
	env  []string // beside the environment
	argv []string // go test gets -json, and its events are printed as lines
}

func (s step) run(r *report) error {
	argv := s.argv
	isTest := len(argv) > 1 && argv[0] == "go" && argv[1] == "test"
	if isTest {
		argv = append([]string{"go", "test", "-json"}, argv[2:]...)
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir, c.Env = s.dir, append(os.Environ(), s.env...)
	c.Stderr = r.w
	if !isTest {
		c.Stdout = r.w
		return c.Run()
	}
	events, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	r.read(events)
	return c.Wait()
}
