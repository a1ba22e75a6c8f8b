package command

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/testsync"
)

// patience bounds what should take no time at all, on a machine that is busy.
const patience = 10 * time.Second

// way is Plan.Run or Plan.RunPortably.
type way func(Plan, context.Context, io.Writer, io.Writer) (End, error)

// inEachWay runs a test once in the way of this system, and once in the way that
// all systems have.
func inEachWay(t *testing.T, test func(*testing.T, way)) {
	t.Helper()
	t.Run("as here", func(t *testing.T) { test(t, Plan.Run) })
	t.Run("portably", func(t *testing.T) { test(t, Plan.RunPortably) })
}

func script(t *testing.T, text string) Plan {
	t.Helper()
	return planOf(t, Command{Words: []string{"/bin/sh", "-c", text}})
}

func TestOutputsOfOneWriterKeepTheirOrder(t *testing.T) {
	inEachWay(t, func(t *testing.T, run way) {
		tail := &Tail{Max: 1000}
		end, err := run(script(t, `for i in 1 2 3 4 5 6 7 8 9; do echo o; echo e >&2; done`), t.Context(), tail, tail)
		if got := tail.String(); err != nil || end.Status != 0 || got != strings.Repeat("o\ne\n", 9) {
			t.Errorf("got %q, %v, %v", got, end, err)
		}
	})
}

func TestCommandThatHasClosedItsOutputsIsWaitedFor(t *testing.T) {
	inEachWay(t, func(t *testing.T, run way) {
		end, err := run(script(t, `exec >&- 2>&-; sleep 0.1; exit 7`), t.Context(), new(Head), new(Head))
		if err != nil || end.Status.ExitStatus() != 7 || end.Killed {
			t.Errorf("got %+v, %v", end, err)
		}
	})
}

func TestOutputAfterALongSilenceIsRead(t *testing.T) {
	inEachWay(t, func(t *testing.T, run way) {
		stdout, stderr := &Head{Max: 10}, &Head{Max: 10}
		_, err := run(script(t, `exec >&-; sleep 0.1; echo e >&2`), context.Background(), stdout, stderr)
		if err != nil || stdout.String() != "" || stderr.String() != "e\n" {
			t.Errorf("got %q, %q, %v", stdout, stderr, err)
		}
	})
}

func TestStoppedCommandIsKilledInTime(t *testing.T) {
	inEachWay(t, func(t *testing.T, run way) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		stdout := &Head{Max: 10}
		end, err := run(script(t, `echo out; kill -STOP $$$$`), ctx, stdout, new(Head))
		if err != nil || !end.Killed || end.Status.Signal() != syscall.SIGKILL || stdout.String() != "out\n" {
			t.Errorf("got %+v, %v and %q", end, err, stdout)
		}
	})
}

func TestStatusThatSomebodyElseHasTakenIsAnError(t *testing.T) {
	inEachWay(t, func(t *testing.T, run way) {
		signal.Ignore(syscall.SIGCHLD) // the kernel reaps then
		defer func() {
			heeded := make(chan os.Signal, 1)
			signal.Notify(heeded, syscall.SIGCHLD) // Reset alone would leave it ignored
			signal.Stop(heeded)
		}()
		end, err := run(script(t, `exit 0`), t.Context(), new(Head), new(Head))
		if err == nil || !strings.Contains(err.Error(), "exit status is lost") {
			t.Errorf("got %+v, %v", end, err)
		}
	})
}

// The moment is drawn, since none can be held still: before the start, between
// the command's end and the reaping, while the pipes are closed.
func TestRunThatIsCancelledAtAnyMomentLeavesNothingBehind(t *testing.T) {
	inEachWay(t, func(t *testing.T, run way) {
		plan, before := planOf(t, Command{Words: []string{"/bin/true"}}), len(files(t))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 25 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(3*time.Millisecond))
					end, err := run(plan, ctx, new(Head), new(Head))
					cancel()
					if err != nil || !end.Killed && end.Status != 0 {
						t.Errorf("got %+v, %v", end, err)
					}
				}
			})
		}
		all.Wait()
		awaitFiles(t, before)
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != syscall.ECHILD {
			t.Errorf("a child is left: wait4 = %d, %v", pid, err)
		}
	})
}

// files returns the numbers of the open descriptors.
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

// awaitFiles waits until no more descriptors are open than n.
func awaitFiles(t *testing.T, n int) {
	t.Helper()
	testsync.Until(t, strconv.Itoa(n)+" open descriptors at most", func() bool { return len(files(t)) <= n })
}
