package command

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// runFunc is Plan.Run or Plan.RunPortably.
type runFunc func(Plan, context.Context, io.Writer, io.Writer) (End, error)

// runBoth runs a test with Run and with RunPortably.
func runBoth(t *testing.T, test func(*testing.T, runFunc)) {
	t.Helper()
	t.Run("Run", func(t *testing.T) { test(t, Plan.Run) })
	t.Run("RunPortably", func(t *testing.T) { test(t, Plan.RunPortably) })
}

func script(t *testing.T, text string) Plan {
	t.Helper()
	return planOf(t, Command{Words: []string{"/bin/sh", "-c", text}})
}

func TestOutputsOfOneWriterKeepTheirOrder(t *testing.T) {
	runBoth(t, func(t *testing.T, run runFunc) {
		tail := &Output{Max: 1000, Last: true}
		end, err := run(script(t, `for i in 1 2 3 4 5 6 7 8 9; do echo o; echo e >&2; done`), t.Context(), tail, tail)
		if got := tail.String(); err != nil || end.Status != 0 || got != strings.Repeat("o\ne\n", 9) {
			t.Errorf("got %q, %v, %v", got, end, err)
		}
	})
}

// A command can read all of its input up to the end; a command that reads none of it succeeds as well.
func TestTheInputIsThere(t *testing.T) {
	runBoth(t, func(t *testing.T, run runFunc) {
		for text, want := range map[string]string{`wc -c`: "300000\n", `head -c 2; exit 0`: "xx", `true`: "", `exec <&-`: ""} {
			p := script(t, text)
			p.Stdin = []byte(strings.Repeat("x", 300_000)) // more than a pipe holds
			stdout := &Output{Max: 100}
			if end, err := run(p, t.Context(), stdout, new(Output)); err != nil || end.Status != 0 || end.Killed || strings.TrimLeft(stdout.String(), " ") != want {
				t.Errorf("%s: got %q, %+v, %v", text, stdout.String(), end, err)
			}
		}
		stdout := &Output{Max: 100}
		if _, err := run(script(t, `wc -c`), t.Context(), stdout, new(Output)); err != nil || strings.TrimSpace(stdout.String()) != "0" {
			t.Errorf("without an input: %q, %v", stdout.String(), err)
		}
	})
}

func TestCommandThatClosesItsOutputsIsWaitedFor(t *testing.T) {
	runBoth(t, func(t *testing.T, run runFunc) {
		end, err := run(script(t, `exec >&- 2>&-; sleep 0.1; exit 7`), t.Context(), new(Output), new(Output))
		if err != nil || end.Status.ExitStatus() != 7 || end.Killed {
			t.Errorf("got %+v, %v", end, err)
		}
	})
}

func TestOutputAfterALongSilenceIsRead(t *testing.T) {
	runBoth(t, func(t *testing.T, run runFunc) {
		stdout, stderr := &Output{Max: 10}, &Output{Max: 10}
		_, err := run(script(t, `exec >&-; sleep 0.1; echo e >&2`), context.Background(), stdout, stderr)
		if err != nil || stdout.String() != "" || stderr.String() != "e\n" {
			t.Errorf("got %q, %q, %v", stdout, stderr, err)
		}
	})
}

func TestStoppedCommandIsKilledInTime(t *testing.T) {
	runBoth(t, func(t *testing.T, run runFunc) {
		for range 100 { // on a busy machine, some commands die later
			end := killStopped(t, run)
			if !end.Killed || end.Stuck == nil && end.Status.Signal() != syscall.SIGKILL {
				t.Fatalf("got %+v", end)
			}
			if end.Stuck == nil {
				return
			}
			testsync.Receive(t, "the command's death", end.Stuck)
		}
		t.Error("no command died within 2*waitDelay")
	})
}

// killStopped runs a command that stops itself, and then cancels it.
func killStopped(t *testing.T, run runFunc) End {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stdout := new(testsync.Buffer)
	ended := make(chan End, 1)
	go func() {
		end, err := run(script(t, `echo out; kill -STOP $$$$`), ctx, stdout, new(Output))
		if err != nil {
			t.Error(err)
		}
		ended <- end
	}()
	testsync.Until(t, "the output", func() bool { return stdout.String() == "out\n" })
	cancel()
	return testsync.Receive(t, "the end", ended)
}

// A guard reaps the commands of Run, regardless of what this process waits for or ignores.
func TestStatusThatWasReapedElsewhereIsAnError(t *testing.T) {
	runBoth(t, func(t *testing.T, run runFunc) {
		signal.Ignore(syscall.SIGCHLD) // makes the kernel reap
		defer func() {
			received := make(chan os.Signal, 1)
			signal.Notify(received, syscall.SIGCHLD) // Reset alone would leave the signal ignored
			signal.Stop(received)
		}()
		end, err := run(script(t, `exit 3`), t.Context(), new(Output), new(Output))
		if end.Status.ExitStatus() != 3 && (err == nil || !strings.Contains(err.Error(), "exit status is lost")) {
			t.Errorf("got %+v, %v", end, err)
		}
	})
}

// The command is cancelled at a random time: before the start, between exit and reaping, while the pipes are closed, and so on.
func TestRunThatIsCancelledAtAnyTimeLeavesNothingBehind(t *testing.T) {
	tier.Slow(t)
	runBoth(t, func(t *testing.T, run runFunc) {
		plan := planOf(t, Command{Words: []string{"/bin/true"}})
		before := filesAfter(t, plan)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 25 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(3*time.Millisecond))
					end, err := run(plan, ctx, new(Output), new(Output))
					cancel()
					if err != nil && !shortage.IsFork(err) || !end.Killed && end.Status != 0 { // a starved guard does not respond in time
						t.Errorf("got %+v, %v", end, err)
					}
					if end.Stuck != nil {
						<-end.Stuck
					}
				}
			})
		}
		all.Wait()
		awaitFiles(t, before)
		noChildIsLeft(t)
	})
}

// noChildIsLeft fails if this process has a child other than the guards of commands.
func noChildIsLeft(t *testing.T) {
	t.Helper()
	testsync.Until(t, "no child besides guards", func() bool { // an exited child is reaped soon, and has no command line until then
		children, _ := filepath.Glob("/proc/self/task/*/children")
		for _, file := range children {
			pids, _ := os.ReadFile(file)
			for _, pid := range strings.Fields(string(pids)) {
				words, _ := os.ReadFile("/proc/" + pid + "/cmdline")
				if name, _, _ := strings.Cut(string(words), "\x00"); name != "sonde-command-guard" {
					return false
				}
			}
		}
		return true
	})
}

// files returns the numbers of all open descriptors.
func files(t *testing.T) (numbers []uint64) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("there is no /proc here: ", err)
	}
	for _, entry := range entries {
		if n, err := strconv.ParseUint(entry.Name(), 10, 64); err == nil {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// filesAfter returns the number of open descriptors after a first command, for which the runtime opens those that it keeps.
func filesAfter(t *testing.T, first Plan) int {
	t.Helper()
	if _, err := first.Run(t.Context(), new(Output), new(Output)); err != nil {
		t.Fatal(err)
	}
	return len(files(t))
}

// awaitFiles waits until at most n descriptors are open.
func awaitFiles(t *testing.T, n int) {
	t.Helper()
	testsync.Until(t, strconv.Itoa(n)+" open descriptors at most", func() bool { return len(files(t)) <= n })
}

// The context of each command is done at about the time when the command exits by itself.
func TestACommandThatHasExitedWasNotKilled(t *testing.T) {
	tier.Slow(t)
	runBoth(t, func(t *testing.T, run runFunc) {
		plan, kills := script(t, "exit 7"), 0
		for i := range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			timer := time.AfterFunc(time.Duration(i%40)*100*time.Microsecond, cancel)
			end, err := run(plan, ctx, io.Discard, io.Discard)
			timer.Stop()
			cancel()
			if end.Killed {
				kills++
			}
			if err != nil || end.Killed == (end.Status.ExitStatus() == 7) {
				t.Fatalf("killed: %v, %v, error: %v", end.Killed, end, err)
			}
		}
		t.Logf("%d of 200 were killed", kills)
	})
}
