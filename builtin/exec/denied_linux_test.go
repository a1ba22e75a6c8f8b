package execprobe

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/cgroup"
	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// attempts makes 300 attempts with 100 concurrent probes, and returns the number of each outcome.
func attempts(t *testing.T, script string) (outcomes [4]int) {
	t.Helper()
	h := newHandler(t, command.Plan.Run, sh(script))
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), testsync.Timeout)
				r := h.Probe(ctx, probe.Target{})
				cancel()
				mu.Lock()
				outcomes[r.Outcome]++
				mu.Unlock()
				if r.Outcome != probe.Success && r.Reason != probe.ReasonResources {
					t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
				}
			}
		})
	}
	group.Wait()
	t.Logf("outcomes: %v", outcomes)
	return outcomes
}

// Without their own limit, the commands would take threads that the Go runtime needs, which aborts the process.
func TestCommandsLeaveRoomBelowPidsMax(t *testing.T) {
	tier.CI(t)
	if !faulttest.InCgroup(t, faulttest.Processes(60)) {
		return
	}
	if n := attempts(t, `sleep 0.05; exit 0`); n[probe.Success] == 0 || n[probe.Failure] != 0 {
		t.Errorf("outcomes: %v", n)
	}
}

func TestCommandsLeaveRoomBelowTheUsersLimit(t *testing.T) {
	tier.CI(t)
	if !faulttest.InNamespaces(t) { // in a process of its own
		return
	}
	const processes = 6 // RLIMIT_NPROC of asm-generic/resource.h
	if err := syscall.Setrlimit(processes, &syscall.Rlimit{Cur: 60, Max: 60}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setuid(54321); err != nil { // a user without other processes
		t.Fatal(err)
	}
	if n := attempts(t, `sleep 0.05; exit 0`); n[probe.Success] == 0 || n[probe.Failure] != 0 {
		t.Errorf("outcomes: %v", n)
	}
}

func TestACommandThatIsRefusedProcessesIsNotTheTargetsFault(t *testing.T) {
	tier.CI(t)
	if !faulttest.InCgroup(t, faulttest.Processes(60)) {
		return
	}
	forks := sh(`for i in 1 2 3 4 5 6 7 8; do for j in 1 2 3 4 5 6 7 8; do sleep 60 & done; done; exit 0`)
	for range 2 {
		r := attempt(t, command.Plan.Run, forks, probe.Target{}, 20*time.Second)
		if r.Outcome != probe.Failure || !r.Denied {
			t.Errorf("got %+v", r)
		}
	}
	r := attempt(t, command.Plan.Run, sh(`exit 3`), probe.Target{}, 20*time.Second)
	if r.Outcome != probe.Failure || r.Reason != probe.ReasonExecExit || r.Denied {
		t.Errorf("after it: got %+v", r)
	}
}

// TestACommandThatTakesAllProcessesDoesNotEndTheEngine makes goroutines block in system calls, like those that write a log or a
// file, while a command has taken all processes: the Go runtime needs a thread for each of them.
func TestACommandThatTakesAllProcessesDoesNotEndTheEngine(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processes(200)) {
		return
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := newHandler(t, command.Plan.Run, sh(`(while :; do sleep 600 & done); exec sleep 600`))
	taken := make(chan probe.Result)
	go func() { taken <- h.Probe(ctx, probe.Target{}) }()
	untilProcesses(t, "all processes to be taken", func(n int64) bool { return n >= 199 })
	if r := attempt(t, command.Plan.Run, sh(`exit 0`), probe.Target{}, time.Second); r.Reason != probe.ReasonResources || !r.Denied {
		t.Errorf("another command: got %+v", r)
	}
	blockInSystemCalls(t, runtime.GOMAXPROCS(0)+6)
	cancel()
	<-taken
}

// A command that forks without end is killed long before its timeout, and takes down neither the machine nor the attempts of
// others.
func TestAForkBombIsEnded(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Processes(1500)) {
		return
	}
	for name, script := range map[string]string{
		"in its group":  `b() { b | b & }; b; sleep 600`,
		"of a daemon":   `(setsid sh -c 'while :; do sleep 600 & done' &); sleep 600`,
		"that succeeds": `(setsid sh -c 'while :; do sleep 600 & done' &); sleep 0.1`,
	} {
		t.Run(name, func(t *testing.T) {
			config := sh(strings.ReplaceAll(script, "$", "$$"))
			r := attempt(t, command.Plan.Run, config, probe.Target{}, 10*time.Second) // of a shell that survives the limit
			if r.Reason != "exec.processes" && !r.Denied && name != "that succeeds" { // or it took all that it may have before that
				t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
			}
			untilProcesses(t, "the end of its processes", func(n int64) bool { return n < 200 }) // threads of this process and its guard
			if r := attempt(t, command.Plan.Run, sh(`exit 0`), probe.Target{}, testsync.Timeout); r.Outcome != probe.Success {
				t.Errorf("the next attempt: %v %q %q", r.Outcome, r.Reason, r.Detail)
			}
		})
	}
}

// blockInSystemCalls returns after n goroutines have concurrently read from a pipe.
func blockInSystemCalls(t *testing.T, n int) {
	t.Helper()
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	var begun, ended sync.WaitGroup
	begun.Add(n)
	for range n {
		ended.Go(func() {
			begun.Done()
			var b [1]byte
			if _, err := syscall.Read(pipe[0], b[:]); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	if _, err := syscall.Write(pipe[1], make([]byte, n)); err != nil {
		t.Error(err)
	}
	ended.Wait()
	for _, fd := range pipe {
		_ = syscall.Close(fd)
	}
}

func TestACommandThatIsKilledForMemoryIsNotTheTargetsFault(t *testing.T) {
	tier.Slow(t)
	if !faulttest.InCgroup(t, faulttest.Memory(100_000_000)) {
		return
	}
	r := attempt(t, command.Plan.Run, sh(`exec tail /dev/zero`), probe.Target{}, 20*time.Second)
	if r.Outcome != probe.Failure || !r.Denied {
		t.Errorf("got %+v", r)
	}
	r = attempt(t, command.Plan.Run, sh(`kill -9 $$$$`), probe.Target{}, 20*time.Second)
	if r.Outcome != probe.Failure || r.Reason != probe.ReasonExecSignal || r.Denied {
		t.Errorf("after it: got %+v", r)
	}
}

func TestWithoutDescriptorsACommandIsNotStarted(t *testing.T) {
	inEachWay(t, func(t *testing.T, run runFunc) {
		faulttest.NoDescriptors(t)
		for name, target := range map[string]probe.Target{"own user": {}, "a user": {User: "nobody"}, "a number": {User: "54321:54321"}} {
			r := attempt(t, run, sh(`exit 0`), target, 20*time.Second)
			if r.Outcome != probe.Unknown || name == "own user" && r.Reason != probe.ReasonResources {
				t.Errorf("%s: got %v %q %q", name, r.Outcome, r.Reason, r.Detail)
			}
		}
	})
}

// untilProcesses waits until the number of processes and threads of this process's cgroup is right.
func untilProcesses(t *testing.T, what string, isRight func(n int64) bool) {
	t.Helper()
	own, err := cgroup.Current()
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := own.Dirs("pids")
	if err != nil {
		t.Fatal(err)
	}
	testsync.Until(t, what, func() bool {
		n, _, err := cgroup.Number(dirs[0], "pids.current")
		return err == nil && isRight(n)
	})
}
