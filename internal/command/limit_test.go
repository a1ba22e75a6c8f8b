package command

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// roomFor returns a limiter with room for n commands, beside the reserve, of which it
// counts those that run.
func roomFor(n int) (l *limiter, running *atomic.Int64) {
	const limit = 300
	running = new(atomic.Int64)
	return &limiter{room: func() (int, int, bool) {
		return reserve(limit) + (n-int(running.Load()))*perCommand, limit, true
	}}, running
}

func TestCommandsThatHaveToWaitAreStartedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, waiting = 3, 5
		l, running := roomFor(room)
		for range room {
			if waited, err := l.acquire(t.Context()); err != nil || waited != 0 {
				t.Fatalf("waited %v, %v", waited, err)
			}
		}
		order := make(chan int, waiting)
		for i := range waiting {
			go func() {
				if waited, err := l.acquire(t.Context()); err != nil || waited == 0 {
					t.Errorf("waited %v, %v", waited, err)
				}
				order <- i
			}()
			time.Sleep(time.Second)
		}
		for i := range room {
			running.Add(1)
			l.started(nil)
			if len(order) != 0 {
				t.Fatalf("command %d was started without room, after %d", <-order, i)
			}
		}
		for i := range waiting {
			running.Add(-1)
			time.Sleep(time.Second) // until the room is read again
			if got := <-order; got != i {
				t.Errorf("command %d was started, want %d", got, i)
			}
			running.Add(1)
			l.started(nil)
		}
	})
}

func TestACommandWaitsForHalfOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := roomFor(0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		waited, err := l.acquire(ctx)
		if !errors.Is(err, syscall.EAGAIN) || waited != 5*time.Second {
			t.Errorf("waited %v, %v", waited, err)
		}
		if l.waiting.Len() != 0 || l.starting != 0 {
			t.Errorf("%d wait, %d are starting", l.waiting.Len(), l.starting)
		}
	})
}

func TestAfterARefusedForkTheRoomIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := roomFor(10)
		if _, err := l.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.started(syscall.EAGAIN)
		if waited, err := l.acquire(t.Context()); err != nil || waited < minReading {
			t.Errorf("waited %v, %v", waited, err)
		}
	})
}

func TestACommandThatCannotBeStartedDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{room: func() (left, limit int, ok bool) { return 0, 0, false }}
		for _, err := range []error{syscall.ENOENT, errors.New("exit status is lost")} {
			if _, err := l.acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.started(err)
			if waited, err := l.acquire(t.Context()); err != nil || waited != 0 {
				t.Errorf("waited %v, %v", waited, err)
			}
			l.started(nil)
		}
	})
}

func TestARefusedForkDelaysOthersForAMomentOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{room: func() (left, limit int, ok bool) { return 0, 0, false }}
		if _, err := l.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.started(syscall.EAGAIN)
		if waited, err := l.acquire(t.Context()); err != nil || waited < minReading || waited > recheck {
			t.Errorf("waited %v, %v", waited, err)
		}
	})
}

func TestDenialsConcernTheCommandsThatRan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := int64(7) // of earlier commands
		d := denialCounter{read: func() int64 { return count }}
		d.begin()
		first := time.Now()
		if d.since(first) {
			t.Error("a denial before the first command counts")
		}
		time.Sleep(time.Second)
		second := time.Now()
		count++
		for _, start := range []time.Time{first, second} { // both ran then
			if !d.since(start) {
				t.Error("a denial does not count")
			}
		}
		time.Sleep(time.Second)
		if d.since(time.Now()) {
			t.Error("a denial counts for a later command")
		}
	})
}
