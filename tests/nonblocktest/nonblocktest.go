// Package nonblocktest makes the non-blocking attempts of handlers in the same way as the engine, for tests of the built-in
// handlers, and provides a handler that blocks the engine.
package nonblocktest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// Probe makes an attempt in steps, or by h.Probe if a step returns StepBlock. It reports whether the steps returned the result. If
// the system has no nonblock.Set, h.Probe makes every attempt.
func Probe(ctx context.Context, h nonblock.Stepper, t probe.Target) (r probe.Result, stepped bool) {
	spares := new(nonblock.Spares)
	defer Close(spares)
	if set, err := nonblock.NewSet(); err == nil && ctx.Err() == nil {
		defer set.Close()
		if r, ok := steps(ctx, h, nonblock.Attempt{Target: t, Spares: spares}, set); ok {
			return r, true
		}
	}
	return h.Probe(ctx, t), false
}

// InTime is Probe with a timeout.
func InTime(t testing.TB, timeout time.Duration, h nonblock.Stepper, target probe.Target) (r probe.Result, stepped bool) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return Probe(ctx, h, target)
}

// WantNoSteps makes an attempt that must not be made in steps. It repeats an attempt that timed out with a longer timeout.
func WantNoSteps(t testing.TB, timeout time.Duration, h nonblock.Stepper, target probe.Target) {
	t.Helper()
	testsync.Longer(t, "an attempt without steps", timeout, testsync.Timeout, func(timeout time.Duration) bool {
		got, stepped := InTime(t, timeout, h, target)
		if stepped && !strings.HasSuffix(string(got.Reason), ".timeout") {
			t.Fatalf("it was made in steps, and found %+v", got)
		}
		return !stepped
	})
}

// steps makes an attempt in steps, and reports whether they returned a result.
func steps(ctx context.Context, h nonblock.Stepper, a nonblock.Attempt, set *nonblock.Set) (r probe.Result, ok bool) {
	defer context.AfterFunc(ctx, set.Wake)()
	watched := -1
	for ; ; a.Event = next(ctx, set) {
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
			watched = a.FD
			if err := set.Add(watched, 0); err != nil {
				panic(err)
			}
		}
	}
}

// next waits for the next event of an attempt.
func next(ctx context.Context, set *nonblock.Set) nonblock.Event {
	for ready := false; ; {
		switch err := ctx.Err(); {
		case ready:
			return nonblock.StepReady
		case errors.Is(err, context.DeadlineExceeded):
			return nonblock.StepLate
		case err != nil:
			return nonblock.StepStop
		}
		if err := set.Wait(-1, func(uint32) { ready = true }); err != nil {
			panic(err)
		}
	}
}

// Step makes an attempt with spare sockets; its steps must return a result.
func Step(t testing.TB, h nonblock.Stepper, target probe.Target, spares *nonblock.Spares) probe.Result {
	t.Helper()
	return step(t, h, nonblock.Attempt{Target: target, Spares: spares})
}

// StepWaking makes an attempt that requests another one by wake; its steps must return a result.
func StepWaking(t testing.TB, h nonblock.Stepper, target probe.Target, wake func()) probe.Result {
	t.Helper()
	return step(t, h, nonblock.Attempt{Target: target, Wake: wake})
}

func step(t testing.TB, h nonblock.Stepper, a nonblock.Attempt) probe.Result {
	t.Helper()
	set, err := nonblock.NewSet()
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, ok := steps(ctx, h, a, set)
	if !ok {
		t.Fatal("the attempt was left to Probe")
	}
	return r
}

// Close closes the sockets that attempts have left.
func Close(s *nonblock.Spares) {
	for fd, ok := s.Take(); ok; fd, ok = s.Take() {
		_ = nonblock.CloseDescriptor(fd) // it is closed even after an error
	}
}

// Normalize returns a result without the parts that differ between equal attempts: the values of its timings, and the local port.
func Normalize(r probe.Result) probe.Result {
	for _, timing := range []*time.Duration{&r.Timings.Resolve, &r.Timings.Connect, &r.Timings.TLS, &r.Timings.FirstByte} {
		if *timing > 0 {
			*timing = 1
		}
	}
	r.Detail = localPort.ReplaceAllString(r.Detail, ":port->")
	return r
}

// localPort is the port before the arrow between both addresses in an error of package net.
var localPort = regexp.MustCompile(`:\d+->`)

// Descriptors returns the number of open files and sockets of this process.
func Descriptors(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// WaitForDescriptors waits until at most n descriptors are open: a server closes its own soon after an attempt has finished.
func WaitForDescriptors(t testing.TB, n int) {
	t.Helper()
	testsync.Until(t, "descriptors to be closed", func() bool { return Descriptors(t) <= n })
}
