package nonblocktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/internal/testsync"
	"github.com/sonde-probe/sonde/probe"
)

// steps makes an attempt in steps, and reports whether they have led to a result.
func steps(ctx context.Context, h nonblock.Stepper, t probe.Target) (r probe.Result, ok bool) {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		panic(err)
	}
	defer syscall.Close(epoll)
	spares := new(nonblock.Spares)
	defer Close(spares)
	watched := -1
	for a := (nonblock.Attempt{Target: t, Spares: spares}); ; a.Event = next(ctx, epoll) {
		switch h.Step(&a) {
		case nonblock.StepDone:
			return a.Result, true
		case nonblock.StepBlock:
			return probe.Result{}, false
		}
		if a.Event > nonblock.StepReady {
			panic(fmt.Sprintf("the handler goes on after the event %d", a.Event))
		}
		if watched != a.FD {
			watch(epoll, a.FD)
			watched = a.FD
		}
	}
}

// Step makes an attempt in steps to its end, with spare sockets.
func Step(t testing.TB, h nonblock.Stepper, target probe.Target, spares *nonblock.Spares) probe.Result {
	t.Helper()
	a := nonblock.Attempt{Target: target, Spares: spares}
	progress := h.Step(&a)
	for end := time.Now().Add(10 * time.Second); progress == nonblock.StepWait && time.Now().Before(end); progress = h.Step(&a) {
		a.Event = nonblock.StepReady
	}
	if progress != nonblock.StepDone {
		t.Fatalf("the attempt came to %d", progress)
	}
	return a.Result
}

// Close closes what attempts have left.
func Close(s *nonblock.Spares) {
	for fd, ok := s.Take(); ok; fd, ok = s.Take() {
		syscall.Close(fd)
	}
}

// changes are all events of a socket, edge-triggered.
const changes = syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | 1<<31 // syscall.EPOLLET is negative

func watch(epoll, fd int) {
	e := syscall.EpollEvent{Events: changes, Fd: int32(fd)}
	if err := syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &e); err != nil {
		panic(err)
	}
}

// next waits for the next event of an attempt.
func next(ctx context.Context, epoll int) nonblock.Event {
	var events [1]syscall.EpollEvent
	for {
		switch err := ctx.Err(); {
		case errors.Is(err, context.DeadlineExceeded):
			return nonblock.StepLate
		case err != nil:
			return nonblock.StepStop
		}
		n, err := syscall.EpollWait(epoll, events[:], 1) // so long may the end of ctx wait, in ms
		switch {
		case n > 0:
			return nonblock.StepReady
		case err != nil && err != syscall.EINTR:
			panic(err)
		}
	}
}

// Descriptors returns how many files and sockets this process has open.
func Descriptors(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// WaitForDescriptors waits until there are at most n open: a server closes its own
// soon after an attempt has ended.
func WaitForDescriptors(t testing.TB, n int) {
	t.Helper()
	testsync.Until(t, "descriptors to be closed", func() bool { return Descriptors(t) <= n })
}
