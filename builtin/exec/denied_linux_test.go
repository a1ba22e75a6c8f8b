package execprobe

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/command"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

// attempts makes 300 attempts with 100 probes at once, and returns their outcomes.
func attempts(t *testing.T, script string) (outcomes [4]int) {
	t.Helper()
	h := handler(t, command.Plan.Run, sh(script))
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
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

// Without a limit of their own the commands would take the threads that the Go runtime
// needs, which ends the process.
func TestCommandsLeaveRoomBelowPidsMax(t *testing.T) {
	if !faulttest.InCgroup(t, faulttest.Processes(60)) {
		return
	}
	if n := attempts(t, `sleep 0.05; exit 0`); n[probe.Success] == 0 || n[probe.Failure] != 0 {
		t.Errorf("outcomes: %v", n)
	}
}

func TestCommandsLeaveRoomBelowTheUsersLimit(t *testing.T) {
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
	if !faulttest.InCgroup(t, faulttest.Processes(60)) {
		return
	}
	makeThreads(16)
	forks := sh(`for i in 1 2 3 4 5 6 7 8; do for j in 1 2 3 4 5 6 7 8; do sleep 60 & done; done; exit 0`)
	for range 2 {
		r := attempt(t, command.Plan.Run, forks, probe.Target{}, 20*time.Second)
		if r.Outcome != probe.Unknown || r.Reason != probe.ReasonResources {
			t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
		}
	}
	r := attempt(t, command.Plan.Run, sh(`exit 3`), probe.Target{}, 20*time.Second)
	if r.Outcome != probe.Failure || r.Reason != probe.ReasonExecExit {
		t.Errorf("after it: got %v %q %q", r.Outcome, r.Reason, r.Detail)
	}
}

// makeThreads makes threads, which the runtime keeps: it ends the process when it needs one
// and is refused it.
func makeThreads(n int) {
	var made, ended sync.WaitGroup
	release := make(chan struct{})
	made.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			made.Done()
			<-release
		})
	}
	made.Wait()
	close(release)
	ended.Wait()
}

func TestACommandThatIsKilledForMemoryIsNotTheTargetsFault(t *testing.T) {
	if !faulttest.InCgroup(t, faulttest.Memory(100_000_000)) {
		return
	}
	r := attempt(t, command.Plan.Run, sh(`exec tail /dev/zero`), probe.Target{}, 20*time.Second)
	if r.Outcome != probe.Unknown || r.Reason != probe.ReasonResources {
		t.Errorf("got %v %q %q", r.Outcome, r.Reason, r.Detail)
	}
	r = attempt(t, command.Plan.Run, sh(`kill -9 $$$$`), probe.Target{}, 20*time.Second)
	if r.Outcome != probe.Failure || r.Reason != probe.ReasonExecSignal {
		t.Errorf("after it: got %v %q %q", r.Outcome, r.Reason, r.Detail)
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
