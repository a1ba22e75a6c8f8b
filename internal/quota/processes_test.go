package quota

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
func roomFor(n int) (l *Limiter, running *atomic.Int64) {
	const limit = 300
	running = new(atomic.Int64)
	return newLimiter(func() (int, int, bool) {
		return reserve(limit) + (n-int(running.Load()))*perProcess, limit, true
	}), running
}

func TestCommandsThatHaveToWaitAreStartedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, waiting = 3, 5
		l, running := roomFor(room)
		for range room {
			if waited, err := l.Acquire(t.Context()); err != nil || waited != 0 {
				t.Fatalf("waited %v, %v", waited, err)
			}
		}
		order := make(chan int, waiting)
		for i := range waiting {
			go func() {
				if waited, err := l.Acquire(t.Context()); err != nil || waited == 0 {
					t.Errorf("waited %v, %v", waited, err)
				}
				order <- i
			}()
			time.Sleep(time.Second)
		}
		for i := range room {
			running.Add(1)
			l.Started(nil)
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
			l.Started(nil)
		}
	})
}

func TestACommandWaitsForHalfOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := roomFor(0)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		waited, err := l.Acquire(ctx)
		if !errors.Is(err, syscall.EAGAIN) || waited != 5*time.Second {
			t.Errorf("waited %v, %v", waited, err)
		}
		if len(l.first) != 0 || l.starting != 0 {
			t.Errorf("%d wait, %d are starting", len(l.first), l.starting)
		}
	})
}

func TestAfterARefusedForkTheRoomIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := roomFor(10)
		if _, err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Started(syscall.EAGAIN)
		if waited, err := l.Acquire(t.Context()); err != nil || waited < minValid {
			t.Errorf("waited %v, %v", waited, err)
		}
	})
}

func TestACommandThatCannotBeStartedDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(func() (left, limit int, ok bool) { return 0, 0, false })
		for _, err := range []error{syscall.ENOENT, errors.New("exit status is lost")} {
			if _, err := l.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.Started(err)
			if waited, err := l.Acquire(t.Context()); err != nil || waited != 0 {
				t.Errorf("waited %v, %v", waited, err)
			}
			l.Started(nil)
		}
	})
}

func TestARefusedForkDelaysOthersForAMomentOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(func() (left, limit int, ok bool) { return 0, 0, false })
		if _, err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Started(syscall.EAGAIN)
		if waited, err := l.Acquire(t.Context()); err != nil || waited < minValid || waited > 2*recheck {
			t.Errorf("waited %v, %v", waited, err)
		}
	})
}
