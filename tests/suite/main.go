// Command suite runs a tier of the tests, or the tests of changes since the last commit:
//
//	go run ./tests/suite check|test|lint|ci|long
//
// It prints each step by name, a line for each package when its tests finish, and at the end
// the skipped tests, the ten slowest packages, the first lines of failed tests, and what
// processes waited for. It exits with status 1 if a step has failed. Check and test stop after
// the first failed step; the other tiers run all steps and summarize the failures.
//
//	main.go      runs the steps of a tier, some in parallel
//	tiers.go     the tables of steps
//	report.go    the printed output
//	gotest.go    go test: its events, as lines
//	again.go     tests that have failed in parallel with others, run once more alone
//	pressure.go  what processes waited for
//	select.go    which packages a step tests: changed ones, and those that start goroutines
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

// parallelSteps is the maximum number of parallel steps that run at the same time.
const parallelSteps = 3

// run runs the steps of a tier, until a signal cancels ctx.
func run(ctx context.Context, w io.Writer, tier string) error {
	steps, err := tiers[tier]()
	if err != nil {
		return err
	}
	begin, before := time.Now(), readPressure()
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
	r.printf("%s", readPressure().since(before, took))
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
	dir      string   // relative to the root of the repository; empty: the root
	env      []string // in addition to the environment
	argv     []string // go test gets -json, and its events are printed as lines
	parallel bool     // may run in parallel with other such steps
	retries  bool     // a few failed tests are run once more at the end, alone
}

// run runs a step, and reports its result, its duration, and the processor time of its command and descendants. Packages in which
// the race detector has crashed are tested once more.
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

// killDelay is how long the commands of a step may take to exit after SIGINT.
const killDelay = 10 * time.Second

// once runs the command of a step, and adds its processor time to cpu.
func (s step) once(ctx context.Context, r *report, cpu *time.Duration) (all result, err error) {
	argv := s.argv
	if s.isTest() {
		argv = append([]string{"go", "test", "-json"}, argv[2:]...)
	}
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGINT) } // also signals the tests, for which go test would wait
	c.WaitDelay = killDelay
	c.Dir, c.Env = s.dir, append(os.Environ(), s.env...)
	c.Stdout, c.Stderr = r, r
	if s.isTest() {
		prefix := ""
		if s.retries {
			prefix = "| " // the failure may be retracted
		}
		all, err = runTest(c, r, prefix)
	} else {
		err = c.Run()
	}
	if ctx.Err() != nil && c.Process != nil { // processes that ignored SIGINT, such as a shell's background commands
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	if c.ProcessState != nil {
		*cpu += c.ProcessState.UserTime() + c.ProcessState.SystemTime()
	}
	return all, err
}

// runTest runs go test -json, and prefixes the output of failed tests.
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
