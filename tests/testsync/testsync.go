// Package testsync has helpers for tests of concurrent code: waiting for a condition or a value with a limit, a log that may be
// read while it is written, and a folder for sockets.
package testsync

import (
	"bytes"
	"cmp"
	"context"
	"sync"
	"testing"
	"time"
)

// Timeout is how long a test waits before it fails. A test that passes never reaches it, however slow the machine.
const Timeout = 2 * time.Minute

// The time between two calls of a condition, which grows by a quarter each time: a condition that becomes true soon is detected
// soon, and a long wait uses little processor time.
const (
	firstInterval = time.Millisecond
	lastInterval  = 20 * time.Millisecond
)

// Until calls a condition until it is true. It is for events that no channel reports, such as the exit of another process. What
// completes the sentence "timed out waiting for".
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	UntilWithin(t, Timeout, what, condition)
}

// UntilWithin is Until with a limit other than Timeout, for tests of many processes.
func UntilWithin(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	interval := firstInterval
	for end := time.Now().Add(limit); ; interval = min(interval*5/4, lastInterval) {
		late := time.Now().After(end) // before the condition, which is checked once more if the machine stalled
		if condition() {
			return
		}
		if late {
			t.Fatalf("timed out waiting for %s", what)
		}
		<-time.After(interval)
	}
}

// Receive returns the next value of a channel.
func Receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(Timeout):
		t.Fatalf("timed out waiting for %s", what)
	}
	return v
}

// Deadline returns a context whose deadline passes when pass is called: once the expected events have happened, however slow the
// machine. It also passes when ctx is done.
func Deadline(ctx context.Context) (_ context.Context, pass func()) {
	c := deadline{ctx, make(chan struct{})}
	pass = sync.OnceFunc(func() { close(c.passed) })
	context.AfterFunc(ctx, pass)
	return c, pass
}

type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return cmp.Or(d.Context.Err(), context.DeadlineExceeded)
	default:
		return nil
	}
}

// Longer calls try until it returns true. The timeout doubles with each call, up to most. Longer fails the test when all timeouts
// together exceed Timeout and three times most. Use it for an operation that always ends at its timeout and must reach a certain
// state before.
func Longer(t testing.TB, what string, timeout, most time.Duration, try func(timeout time.Duration) bool) {
	t.Helper()
	for spent := timeout; !try(timeout); spent += timeout {
		if spent > max(Timeout, 3*most) {
			t.Fatalf("%s not within %v", what, timeout)
		}
		timeout = min(2*timeout, most)
	}
}

// Buffer is a bytes.Buffer for concurrent use. The zero Buffer is empty.
type Buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Take returns and clears the text.
func (b *Buffer) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}
