//go:build unix

// Package shortagetest takes from the test's process what attempts need of this machine.
package shortagetest

import (
	"sync"
	"syscall"
	"testing"
)

// NoDescriptors lets this process open no files or sockets until restore is called or the
// test ends. Those that are open stay open.
func NoDescriptors(t testing.TB) (restore func()) {
	t.Helper()
	return Descriptors(t, 0)
}

// Descriptors limits the numbers of the files and sockets that this process opens to
// those below limit, until restore is called or the test ends.
func Descriptors(t testing.TB, limit uint64) (restore func()) {
	t.Helper()
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
