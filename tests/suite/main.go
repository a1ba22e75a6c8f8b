// Command suite runs a tier of the tests, or what changed since the last commit:
//
//	go run ./tests/suite check|test|lint|ci|long
//
// It prints each step by name, a line for each package as it ends, and at the end the ten
// slowest packages and what was skipped. It exits with 1 if a step has failed. The first
// step that fails ends check and test; the other tiers run all, and sum up.
//
//	main.go    runs the steps of a tier, some in parallel
//	tiers.go   the tables of steps
//	report.go  what is printed
//	gotest.go  go test: its events, as lines
//	again.go   tests that have failed beside others, run once more alone
//	select.go  which packages a step tests: changed ones, and those that start goroutines
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 2 || tiers[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: go run ./tests/suite check|test|lint|ci|long")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// parallelSteps is how many steps run at a time of those that may run in parallel.
const parallelSteps = 3

// run runs the steps of a tier, until a signal ends ctx.
func run(ctx context.Context, w io.Writer, tier string) error {
	steps, err := tiers[tier]()
	if err != nil {
		return err
	}
	begin := time.Now()
	r := &report{w: w}
	var running sync.WaitGroup
	slots := make(chan struct{}, parallelSteps)
	for i, s := range steps {
		if !s.parallel {
			running.Wait()
		}
		slots <- struct{}{}
		if ctx.Err() != nil || r.hasFailed() && (tier == "check" || tier == "test") {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			r.printf("--- %d/%d %s\n", i+1, len(steps), s.name)
			s.run(ctx, r)
		})
		if !s.parallel {
			running.Wait()
		}
	}
	running.Wait()
	r.runAgain(ctx)
	r.sumUp()
	took := time.Since(begin).Round(time.Second)
	if ctx.Err() != nil {
		return fmt.Errorf("make %s was stopped by a signal after %s", tier, took)
	}
	if r.hasFailed() {
		return fmt.Errorf("make %s has failed after %s: %s", tier, took, strings.Join(r.failed, ", "))
	}
	r.printf("make %s has passed in %s\n", tier, took)
	return nil
}

// step is a command of a tier.
type step struct {
	name     string
	dir      string   // from the root of the repository; empty: there
	env      []string // beside the environment
	argv     []string // go test gets -json, and its events are printed as lines
	parallel bool     // it may run in parallel with other such steps
	retries  bool     // the few tests that fail are run once more at the end, alone
}

// run runs a step, and reports how it has ended, after how long, and the processor time that it
// and its children took. Packages in which the race detector has crashed are tested once more.
func (s step) run(ctx context.Context, r *report) {
	began := time.Now()
	var cpu time.Duration
	all, err := s.once(ctx, r, &cpu)
	if err != nil && slices.Contains(s.argv, "-race") && len(all.crashed) > 0 && len(all.crashed) == len(all.failed) {
		r.printf("    the race detector has crashed (golang/go#78156), tested once more: %s\n", strings.Join(all.crashed, " "))
		again := s
		again.argv = append(slices.Clone(s.argv[:slices.IndexFunc(s.argv, isPackage)]), all.crashed...)
		all, err = again.once(ctx, r, &cpu)
	}
	if err != nil && s.retries && ctx.Err() == nil && all.onlyTests() {
		r.retryLater(s, all.tests)
		err = nil
	}
	r.endStep(s.name, err, time.Since(began), cpu)
}

// isTest reports whether a step runs go test.
func (s step) isTest() bool { return len(s.argv) > 1 && s.argv[0] == "go" && s.argv[1] == "test" }

// isPackage reports whether an argument of go test is a package.
func isPackage(arg string) bool {
	return strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, modulePath)
}

// killDelay is how long the commands of a step have to end after SIGINT.
const killDelay = 10 * time.Second

// once runs the command of a step, and adds the processor time that it took.
func (s step) once(ctx context.Context, r *report, cpu *time.Duration) (all result, err error) {
	argv := s.argv
	if s.isTest() {
		argv = append([]string{"go", "test", "-json"}, argv[2:]...)
	}
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGINT) } // go test, and the tests, which it would wait for
	c.WaitDelay = killDelay
	c.Dir, c.Env = s.dir, append(os.Environ(), s.env...)
	c.Stdout, c.Stderr = r, r
	if s.isTest() {
		prefix := ""
		if s.retries {
			prefix = "| " // it may be retracted
		}
		all, err = runTest(c, r, prefix)
	} else {
		err = c.Run()
	}
	if ctx.Err() != nil && c.Process != nil { // what has not ended by SIGINT, such as a shell's background commands
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	if c.ProcessState != nil {
		*cpu += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	return all, err
}

// runTest runs go test -json, and begins the lines of tests that fail with prefix.
func runTest(c *exec.Cmd, r *report, prefix string) (all result, err error) {
	c.Stdout = nil
	events, err := c.StdoutPipe()
	if err != nil {
		return all, err
	}
	if err := c.Start(); err != nil {
		return all, err
	}
	all = r.read(events, prefix)
	return all, c.Wait()
}
