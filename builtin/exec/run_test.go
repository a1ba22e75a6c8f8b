package execprobe

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func sh(script string) Config { return Config{Command: []string{"/bin/sh", "-c", script}} }

// daemon returns a command that leaves a process behind, in its own session, which holds the output pipes open, and the name of the
// file that will have its process ID. The process is killed when the test ends.
func daemon(t *testing.T, then string) (c Config, pids string) {
	pids = filepath.Join(t.TempDir(), "pids")
	t.Cleanup(func() {
		for _, pid := range readPids(t, pids) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return sh(`pids='` + pids + `'; setsid sh -c 'echo $$$$ >"$0"; exec sleep 600' "$pids" & while ! [ -s "$pids" ]; do sleep 0.01; done; echo ready; ` + then), pids
}

// inEachWay runs a test with the run function of this system, and with the one for all systems.
func inEachWay(t *testing.T, test func(*testing.T, runFunc)) {
	t.Helper()
	t.Run("as here", func(t *testing.T) { test(t, command.Plan.Run) })
	t.Run("portably", func(t *testing.T) { test(t, command.Plan.RunPortably) })
}

func newHandler(t testing.TB, run runFunc, c Config) *handler {
	t.Helper()
	made, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	h := made.(*handler)
	h.run = run
	return h
}

func attempt(t *testing.T, run runFunc, c Config, target probe.Target, timeout time.Duration) probe.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return newHandler(t, run, c).Probe(ctx, target)
}

// atDeadline returns the result of an attempt whose deadline passes once something is true.
func atDeadline(t *testing.T, h *handler, what string, isTrue func() bool) probe.Result {
	t.Helper()
	ctx, pass := testsync.Deadline(t.Context())
	defer pass()
	result := make(chan probe.Result, 1)
	go func() { result <- h.Probe(ctx, probe.Target{}) }()
	testsync.Until(t, what, isTrue)
	pass()
	return receive(t, result)
}

// withoutDeadline returns the result of an attempt that has no deadline.
func withoutDeadline(t *testing.T, h *handler) probe.Result {
	t.Helper()
	result := make(chan probe.Result, 1)
	go func() { result <- h.Probe(t.Context(), probe.Target{}) }()
	return receive(t, result)
}

// receive returns the result of an attempt whose command has exited, or whose deadline has passed.
func receive(t *testing.T, result <-chan probe.Result) probe.Result {
	t.Helper()
	const most = 10 * time.Second // 200 ms and the delay of a busy machine, but not the 600 s until the pipe is closed
	began := time.Now()
	r := testsync.Receive(t, "the result", result)
	if took := time.Since(began); tier.IsLong() && took > most {
		t.Errorf("took %v", took)
	}
	return r
}

// isWritten returns a function that reports whether a file has a complete line.
func isWritten(file string) func() bool {
	return func() bool {
		text, _ := os.ReadFile(file)
		return strings.HasSuffix(string(text), "\n")
	}
}

func readPids(t *testing.T, file string) (pids []int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	for _, field := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Error(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// awaitGone waits until a process has exited. A zombie of another parent counts as exited: the test machine's init may be slow to
// reap.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	needProc(t)
	testsync.Until(t, "the end of process "+strconv.Itoa(pid), func() bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(b), ") Z ")
	})
}

func countFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func needSetsid(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("the tool setsid is missing")
	}
}

func needProc(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("there is no /proc here")
	}
}
