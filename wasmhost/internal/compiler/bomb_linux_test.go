//go:build !race

package compiler

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/reexec"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Excluded under the race detector, which needs several times the memory of these tests, and far
// more address space.

// Otherwise the kernel would kill a process of the group, or all of them with memory.oom.group.
func TestTwoBombsLeaveTheEngineItsMemory(t *testing.T) {
	tier.CI(t)
	if !faulttest.InCgroup(t, faulttest.Memory(200<<20)) {
		return
	}
	errs := make(chan error)
	for range 2 {
		go func() { errs <- compileError(t.Context(), manyLocals(), Limits{}.forModule(100<<10)) }()
	}
	for range 2 {
		err := testsync.Receive(t, "the end of a compilation", errs)
		if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "half of the memory left below the limit /sys/fs/cgroup/") ||
			!strings.Contains(err.Error(), "/memory.") || !strings.Contains(err.Error(), ": raise the limit, or") {
			t.Errorf("got %v", err)
		}
	}
}

const roleDenied = "SONDE_TEST_COMPILE_DENIED"

// TestDeniedHelper is the engine of TestMemoryThatTheMachineDeniesIsNotTheModulesFault.
func TestDeniedHelper(t *testing.T) {
	if os.Getenv(roleDenied) == "" {
		t.Skip("it is a helper of another test")
	}
	addresses := syscall.Rlimit{Cur: 2 << 30, Max: 2 << 30}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &addresses); err != nil {
		t.Fatal(err)
	}
	if err := compileError(t.Context(), manyLocals(), Limits{Memory: 4 << 30, CPU: time.Hour}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("with a limit of addresses: %v", err)
	}
	if err := compileError(t.Context(), idle, Limits{Memory: 4 << 30, CPU: time.Hour}); err != nil {
		t.Errorf("a module that needs less: %v", err)
	}
}

func TestMemoryThatTheMachineDeniesIsNotTheModulesFault(t *testing.T) {
	tier.Slow(t)
	c := exec.Command(reexec.Executable, "-test.run=^TestDeniedHelper$")
	c.Env = append(os.Environ(), roleDenied+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
