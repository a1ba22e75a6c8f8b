package faulttest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sonde-probe/sonde/tests/testsync"
)

// Limit is a limit of a control group: the files that set it, in both versions of control groups.
type Limit struct {
	controller string
	v1, v2     []setting
}

// setting is a file of a control group with its contents.
type setting struct{ file, limited, unlimited string }

// Processes limits processes and threads.
func Processes(n int) Limit {
	s := []setting{{"pids.max", strconv.Itoa(n), "max"}}
	return Limit{"pids", s, s}
}

// Memory limits memory, in bytes. A process that exceeds it is killed.
func Memory(n int) Limit {
	limit := strconv.Itoa(n)
	return Limit{"memory", []setting{{"memory.limit_in_bytes", limit, "-1"}}, []setting{{"memory.max", limit, "max"}}}
}

// NoMemory stops a process, or nearly stops it, at its next allocation.
func NoMemory() Limit {
	return Limit{
		controller: "memory",
		v1:         []setting{{"memory.oom_control", "1", "1"}, {"memory.limit_in_bytes", "1048576", "-1"}},
		v2:         []setting{{"memory.high", "0", "max"}},
	}
}

// Processor limits processor time to a percentage of one processor.
func Processor(percent int) Limit {
	quota := strconv.Itoa(percent * 1000) // of a period of 100,000 µs
	return Limit{
		controller: "cpu",
		v1:         []setting{{"cpu.cfs_period_us", "100000", "100000"}, {"cpu.cfs_quota_us", quota, "-1"}},
		v2:         []setting{{"cpu.max", quota + " 100000", "max 100000"}},
	}
}

// cgroup is a control group of a test.
type cgroup struct {
	dir      string
	settings []setting
}

// groups numbers the control groups of this process.
var groups atomic.Int64

// newCgroup creates a control group, which is removed with its processes when the test ends. The test is skipped if it cannot be
// created.
func newCgroup(t testing.TB, l Limit) cgroup {
	t.Helper()
	name := fmt.Sprintf("sonde-test-%d-%d", os.Getpid(), groups.Add(1))
	for _, g := range []cgroup{{"/sys/fs/cgroup/" + l.controller, l.v1}, {"/sys/fs/cgroup", l.v2}} {
		g.dir = filepath.Join(g.dir, name)
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { g.remove(t) })
		if g.set(func(s setting) string { return s.limited }) == nil {
			return g
		}
	}
	t.Skip("no control group with the controller " + l.controller + " can be made here")
	return cgroup{}
}

func (g cgroup) set(content func(setting) string) error {
	for _, s := range g.settings {
		if err := os.WriteFile(filepath.Join(g.dir, s.file), []byte(content(s)), 0); err != nil {
			return err
		}
	}
	return nil
}

// remove kills the processes of a control group and removes it.
func (g cgroup) remove(t testing.TB) {
	testsync.Until(t, "the removal of a control group", func() bool {
		text, _ := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have exited
			}
		}
		return os.Remove(g.dir) == nil
	})
}

// InCgroup runs the calling test again, in its own process in its own control group, and reports whether this is that process. The
// test is skipped if no control group can be created.
func InCgroup(t *testing.T, l Limit) bool {
	t.Helper()
	if isInside(t) {
		return true
	}
	g := newCgroup(t, l)
	run(t, insideOf(t, "/bin/sh", "-c", `echo $$ >`+g.dir+`/cgroup.procs && exec "$0" "$@"`, os.Args[0]))
	return false
}

// Group creates a control group, and returns the file that a process writes to in order to join it.
func Group(t testing.TB, l Limit) (join string) {
	return filepath.Join(newCgroup(t, l).dir, "cgroup.procs")
}

// Confine moves a process to its own control group. The function lift removes the limit. The process should exit before the test
// ends; otherwise it is killed.
func Confine(t testing.TB, pid int, l Limit) (lift func()) {
	t.Helper()
	g := newCgroup(t, l)
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if err := g.set(func(s setting) string { return s.unlimited }); err != nil {
			t.Error(err)
		}
	})
}
