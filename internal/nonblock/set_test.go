//go:build linux

package nonblock_test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
)

func set(t *testing.T) *nonblock.Set {
	t.Helper()
	s, err := nonblock.NewSet()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func wait(t *testing.T, s *nonblock.Set, timeout time.Duration) (keys []uint32) {
	t.Helper()
	if err := s.Wait(timeout, func(key uint32) { keys = append(keys, key) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

// pipe returns a pipe whose reading end is watched under a key.
func pipe(t *testing.T, s *nonblock.Set, key uint32) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	if err := s.Add(int(r.Fd()), key); err != nil {
		t.Fatal(err)
	}
	return r, w
}

func TestChangesAreReportedByKeyOnce(t *testing.T) {
	s := set(t)
	_, a := pipe(t, s, 1)
	_, b := pipe(t, s, 1<<31)
	if got := wait(t, s, 0); len(got) != 0 {
		t.Errorf("nothing has changed, and %v is reported", got)
	}
	a.WriteString("x")
	b.WriteString("x")
	if got := wait(t, s, time.Minute); !slices.Equal(got, []uint32{1, 1 << 31}) {
		t.Errorf("got %v", got)
	}
	if got := wait(t, s, 0); len(got) != 0 {
		t.Errorf("nothing is new, and %v is reported", got)
	}
	b.Close()
	if got := wait(t, s, time.Minute); !slices.Equal(got, []uint32{1 << 31}) {
		t.Errorf("got %v, want the end of the second", got)
	}
}

func TestAClosedDescriptorIsRemoved(t *testing.T) {
	s := set(t)
	r, w := pipe(t, s, 1)
	w.WriteString("x")
	r.Close()
	if got := wait(t, s, 0); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestWakeEndsTheCurrentOrTheNextWait(t *testing.T) {
	s := set(t)
	s.Wake()
	s.Wake()
	wait(t, s, -1)
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		s.Wake()
	}()
	wait(t, s, -1)
	<-woken
	if got := wait(t, s, 0); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestAWaitEndsAtItsTimeout(t *testing.T) {
	s := set(t)
	const timeout = 1500 * time.Microsecond
	waits := 0
	for start := time.Now(); time.Since(start) < timeout; waits++ { // a signal may end a wait early
		if got := wait(t, s, timeout); len(got) != 0 {
			t.Errorf("got %v", got)
		}
	}
	if waits > 100 {
		t.Errorf("it did not wait, %d times", waits)
	}
}

func TestOnlyTheEndOfAConnectionIsReported(t *testing.T) {
	s := set(t)
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(ends[0])
	if err := s.AddEnd(ends[0], 7); err != nil {
		t.Fatal(err)
	}
	if _, err := syscall.Write(ends[1], []byte("x")); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, s, 0); len(got) != 0 {
		t.Errorf("a byte has arrived, and %v is reported", got)
	}
	if err := syscall.Close(ends[1]); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, s, time.Minute); !slices.Equal(got, []uint32{7}) {
		t.Errorf("got %v, want the end", got)
	}
	if got := wait(t, s, 0); len(got) != 0 {
		t.Errorf("nothing is new, and %v is reported", got)
	}
}

func TestAddingADescriptorAgainChangesItsKey(t *testing.T) {
	s := set(t)
	r, w := pipe(t, s, 1)
	w.WriteString("x")
	if got := wait(t, s, time.Minute); !slices.Equal(got, []uint32{1}) {
		t.Errorf("got %v", got)
	}
	if err := s.Add(int(r.Fd()), 2); err != nil {
		t.Fatal(err)
	}
	if got := wait(t, s, time.Minute); !slices.Equal(got, []uint32{2}) {
		t.Errorf("got %v, want the second key, of what came before it", got)
	}
}

func TestOneWaitReportsManyChanges(t *testing.T) {
	const many = 300
	s := set(t)
	for key := range uint32(many) {
		_, w := pipe(t, s, key)
		w.WriteString("x")
	}
	if got := wait(t, s, 0); len(got) != many {
		t.Errorf("%d changes are reported, want %d", len(got), many)
	}
}
