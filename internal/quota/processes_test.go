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

// roomFor returns a limiter with room for n commands, in addition to the reserve, and the number of running commands
// that room counts. None of them has started a child yet.
func roomFor(n int) (l *limiter, running *atomic.Int64) {
	const limit = 300
	running = new(atomic.Int64)
	l = newLimiter(func() (room, error) {
		return room{left: reserve(limit) + n*perProcess - int(running.Load())*(perProcess-children) - l.spare, limit: limit}, nil
	}, func(int) {})
	return l, running
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
			l.Ended()
			time.Sleep(time.Second) // until the room is read again
			if got := <-order; got != i {
				t.Errorf("command %d was started, want %d", got, i)
			}
			running.Add(1)
			l.Started(nil)
		}
	})
}

// A shell that is short of CPU time starts its child late.
func TestRoomIsKeptForTheChildrenOfCommandsThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 60
		tasks := 0 // of the commands: one process and one thread each
		l := newLimiter(func() (room, error) { return room{left: limit - tasks, limit: limit}, nil }, func(int) {})
		commands := 0
		for {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := l.Acquire(ctx)
			cancel()
			if err != nil {
				break
			}
			l.Started(nil)
			commands++
			tasks += perProcess - children
			time.Sleep(time.Second) // the room is read again
		}
		if after := tasks + commands*children; commands == 0 || after > limit-reserve(limit)/2 {
			t.Errorf("%d commands have %d processes and threads once each has a child, of %d", commands, after, limit)
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
		l := newLimiter(func() (room, error) { return unlimited, nil }, func(int) {})
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
		l := newLimiter(func() (room, error) { return unlimited, nil }, func(int) {})
		if _, err := l.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.Started(syscall.EAGAIN)
		if waited, err := l.Acquire(t.Context()); err != nil || waited < minValid || waited > 2*recheck {
			t.Errorf("waited %v, %v", waited, err)
		}
	})
}

func TestWhatCannotBeReadIsWhatItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var short error = syscall.EMFILE
		l := newLimiter(func() (room, error) { return room{left: reserve(300) + perProcess, limit: 300}, short }, func(int) {})
		if waited, err := l.Acquire(t.Context()); !errors.Is(err, syscall.EMFILE) || waited != 0 {
			t.Errorf("before the first reading: waited %v, %v", waited, err)
		}
		short = nil
		if waited, err := l.Acquire(t.Context()); err != nil || waited != 0 {
			t.Errorf("waited %v, %v", waited, err)
		}
		short = syscall.EMFILE
		time.Sleep(2 * unlimitedFor)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if waited, err := l.Acquire(ctx); !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("more commands than there was room for: waited %v, %v", waited, err)
		}
	})
}

// A command may take the rest of the limit at any time.
func TestThreadsAreMadeBeforeCommandsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 300
		left := limit
		running, made := 0, 0
		l := newLimiter(func() (room, error) { return room{left: left - made - running, limit: limit}, nil }, func(idle int) {
			made = max(made, running+idle)
		})
		for range 40 {
			if _, err := l.Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
			running++
			l.Started(nil)
			if spare := made - running; spare < reserve(limit)/2 {
				t.Fatalf("%d commands and %d threads", running, made)
			}
		}
		before := made
		left = made + running + reserve(limit)/2 // a command takes the rest
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range made {
			if _, err := l.Acquire(ctx); err != nil {
				break
			}
		}
		if made != before {
			t.Errorf("%d threads are made without room for them", made-before)
		}
		for range running {
			l.Ended()
		}
		left = limit
		if _, err := l.Acquire(t.Context()); err != nil || made != before {
			t.Errorf("threads that are idle are made again: %d, %v", made-before, err)
		}
	})
}

func TestTheThreadsOfAProcessTakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room, threads = 3, 2 * perProcess
		l, running := roomFor(room)
		if _, err := l.AcquireThreads(t.Context(), threads); err != nil {
			t.Fatal(err)
		}
		l.Started(nil)
		running.Add(1)
		acquire := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Acquire(ctx)
			return err
		}
		if err := acquire(); !errors.Is(err, syscall.EAGAIN) {
			t.Errorf("there is room for another process: %v", err)
		}
		l.ReleaseThreads(threads)
		time.Sleep(time.Second) // until the room is read again
		if err := acquire(); err != nil {
			t.Errorf("after its threads have ended: %v", err)
		}
	})
}

func TestReservedRoomIsNotGivenTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100
		l := newLimiter(func() (room, error) { return room{left: reserve(limit) + 10, limit: limit}, nil }, func(int) {})
		release, err := l.Reserve(8)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := l.Reserve(3); !errors.Is(err, syscall.EAGAIN) {
				t.Errorf("beside the first: %v", err)
			}
			time.Sleep(time.Second) // the room is read again
		}
		release()
		release()
		time.Sleep(time.Second)
		if _, err := l.Reserve(10); err != nil {
			t.Errorf("after the release: %v", err)
		}
	})
}
