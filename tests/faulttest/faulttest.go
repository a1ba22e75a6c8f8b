//go:build unix

// Package faulttest lets tests deprive a process of resources of this machine:
// descriptors, memory, processor time, processes, its network and its name servers.
//
//	faulttest.go         descriptors of the test's process
//	process_linux.go     another process that is stopped or out of descriptors; the clock
//	cgroup_linux.go      limits of control groups
//	namespaces_linux.go  the test's own network and file systems
//	nameserver.go        a name server
package faulttest

import (
	"os"
	"sync"
	"syscall"
	"testing"
)

// NoDescriptors prevents this process from opening files or sockets until restore is called or the test ends. Open ones stay open.
func NoDescriptors(t testing.TB) (restore func()) {
	t.Helper()
	return Descriptors(t, 0)
}

// StartPoller makes the runtime open the descriptors of its poller. The runtime opens them for the first file that it polls, keeps
// them, and aborts if they are refused.
func StartPoller(t testing.TB) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
}

// Descriptors limits the numbers of the files and sockets that this process opens to those below limit, until restore is called or
// the test ends.
func Descriptors(t testing.TB, limit uint64) (restore func()) {
	t.Helper()
	StartPoller(t)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = limit
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	restore = sync.OnceFunc(func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(restore)
	return restore
}
