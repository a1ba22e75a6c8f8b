package faulttest

import (
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Stop stops a process, as if its virtual machine were frozen, until resume is called or the test ends.
func Stop(t testing.TB, pid int) (resume func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume = sync.OnceFunc(func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(resume)
	return resume
}

// DescriptorsOf is Descriptors for another process.
func DescriptorsOf(t testing.TB, pid int, limit uint64) (restore func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = limit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	restore = sync.OnceFunc(func() {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(restore)
	return restore
}

// MoveClock moves the clock of the whole machine, until back is called or the test ends. The test is skipped if that is not
// permitted.
func MoveClock(t testing.TB, by time.Duration) (back func()) {
	t.Helper()
	before, start := time.Now().Round(0), time.Now() // one without, and one with a monotonic reading
	set := func(to time.Time) error {
		ts := unix.NsecToTimespec(to.UnixNano())
		return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	if err := set(before.Add(by)); err != nil {
		t.Skip("cannot set the clock: ", err)
	}
	back = sync.OnceFunc(func() {
		if err := set(before.Add(time.Since(start))); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(back)
	return back
}

// Busy starts n loops that use all processor time they can get, until stop is called, the test or its process ends, or each loop
// has used a minute.
func Busy(t testing.TB, n int) (stop func()) {
	t.Helper()
	loops := make([]*exec.Cmd, n)
	stop = sync.OnceFunc(func() {
		for _, c := range loops {
			if c != nil && c.Process != nil {
				_ = c.Process.Kill()
				_ = c.Wait()
			}
		}
	})
	t.Cleanup(stop)
	for i := range loops {
		loops[i] = exec.Command("/bin/sh", "-c", "ulimit -t 60; while :; do :; done")
		loops[i].SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := loops[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	return stop
}
