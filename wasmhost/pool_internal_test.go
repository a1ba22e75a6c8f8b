package wasmhost

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sonde-probe/sonde/wasmhost/internal/sandbox"
)

// newTestPool returns a pool that counts the instances it closes.
func newTestPool(limit int, closed *int) *pool {
	return newPool(limit, func() int { return limit }, func() {}, func(*sandbox.Instance) { *closed++ })
}

func TestInstancesAreGrantedInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		only := &sandbox.Instance{}
		if i, waited, err := p.get(t.Context(), laneFirst); i != nil || waited || err != nil {
			t.Fatalf("the first caller got %v, %v, %v", i, waited, err)
		}
		order := make(chan int, 3)
		for n := range 3 {
			go func() {
				if i, _, _ := p.get(t.Context(), laneFirst); i == only {
					order <- n
					p.put(i)
				}
			}()
			synctest.Wait()
		}
		p.put(only)
		for want := range 3 {
			if got := <-order; got != want {
				t.Errorf("caller %d was served as number %d", got, want)
			}
		}
		synctest.Wait()
		if idle, live, waiting := p.counts(); idle != 1 || live != 1 || waiting != 0 {
			t.Errorf("%d idle, %d live, %d waiting", idle, live, waiting)
		}
	})
}

func TestACallerThatStopsWaitingIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		p.get(t.Context(), laneFirst)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, waited, err := p.get(ctx, laneFirst); !waited || !errors.Is(err, errBusy) || time.Since(start) != time.Second/2 {
			t.Errorf("got %v, %v after %v", waited, err, time.Since(start))
		}
		stopped, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, waited, err := p.get(stopped, laneFirst); !waited || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", waited, err)
		}
		p.put(nil) // the instance was closed
		if i, waited, err := p.get(t.Context(), laneFirst); i != nil || waited || err != nil {
			t.Errorf("got %v, %v, %v", i, waited, err)
		}
	})
}

func TestACallerIsRefusedWhenTheQueueIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(2, new(int))
		get := func() (waited bool, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, waited, err = p.get(ctx, laneFirst)
			return waited, err
		}
		for range 2 {
			p.get(t.Context(), laneFirst)
		}
		for range 100 { // each is lent for the whole timeout of a probe
			p.observe(laneFirst, time.Second)
		}
		for range 6 { // three rounds of two instances
			go get()
		}
		synctest.Wait()
		if waited, err := get(); waited || !errors.Is(err, errBusy) {
			t.Errorf("got %v, %v", waited, err)
		}
		for range 100 {
			p.observe(laneFirst, time.Millisecond)
		}
		if waited, err := get(); !waited || !errors.Is(err, errBusy) {
			t.Errorf("with faster calls: got %v, %v", waited, err)
		}
		p.put(nil)
		p.put(nil)
	})
}

func TestUnusedInstancesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		p := newTestPool(3, &closed)
		for range 3 {
			p.get(t.Context(), laneFast)
			p.started()
		}
		for range 3 {
			p.put(&sandbox.Instance{})
		}
		for range 4 {
			time.Sleep(maxIdle / 2)
			i, _, _ := p.get(t.Context(), laneFirst)
			p.put(i)
		}
		if idle, live, _ := p.counts(); closed != 2 || idle != 1 || live != 1 {
			t.Errorf("%d were closed, %d are idle, %d live", closed, idle, live)
		}
		p.closeIdle()
		if _, live, _ := p.counts(); closed != 3 || live != 0 {
			t.Errorf("%d were closed, %d are live", closed, live)
		}
	})
}

func TestFewInstancesAreStartedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(10, new(int))
		started := make(chan *sandbox.Instance, 100)
		for range 20 {
			go func() {
				i, _, _ := p.get(t.Context(), laneFast)
				started <- i
			}()
		}
		for want := maxStarting; want <= 10; want++ {
			synctest.Wait()
			if got := len(started); got != want {
				t.Fatalf("%d start, want %d", got, want)
			}
			p.started()
		}
		for range 20 {
			p.put(&sandbox.Instance{})
		}
	})
}

// tryGet reports whether a caller gets an instance without waiting.
func tryGet(p *pool, l lane) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	i, _, err := p.get(ctx, l)
	if err == nil && i == nil {
		p.started()
	}
	return err == nil
}

func TestSlowCallersLeaveAReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, p := range map[string]*pool{
			"limited by number": newTestPool(16, new(int)),
			"limited by memory": func() (p *pool) {
				p = newPool(1000, func() int { return 16 - p.live }, func() {}, func(*sandbox.Instance) {})
				return p
			}(),
		} {
			lent := map[lane]int{}
			for _, lane := range []lane{laneSlow, laneFirst, laneFast} {
				for tryGet(p, lane) {
					lent[lane]++
				}
			}
			if lent[laneSlow] != 12 || lent[laneFirst] != 2 || lent[laneFast] != 2 {
				t.Errorf("%s: slow, first and fast callers got %d, %d and %d", name, lent[laneSlow], lent[laneFirst], lent[laneFast])
			}
			p.put(nil)
			if tryGet(p, laneSlow) || !tryGet(p, laneFast) {
				t.Errorf("%s: a slow caller took what was reserved", name)
			}
		}
	})
}

func TestFastCallersGetInstancesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		p.get(t.Context(), laneSlow)
		p.started()
		var order []lane
		for _, lane := range []lane{laneSlow, laneFirst, laneFast} {
			go func() {
				i, _, _ := p.get(t.Context(), lane)
				order = append(order, lane)
				p.put(i)
			}()
			synctest.Wait()
		}
		p.put(&sandbox.Instance{})
		synctest.Wait()
		if want := []lane{laneFast, laneFirst, laneSlow}; !slices.Equal(order, want) {
			t.Errorf("got %v", order)
		}
	})
}

func TestAPoolShrinksAndGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		p := newTestPool(64, &closed)
		for range 16 {
			tryGet(p, laneFast)
		}
		p.shrink()
		for range 8 {
			p.put(&sandbox.Instance{})
		}
		if closed != 8 || tryGet(p, laneFast) {
			t.Errorf("%d were closed, or one more was lent", closed)
		}
		if p.grow(); tryGet(p, laneFast) {
			t.Error("it grows at once")
		}
		time.Sleep(growPause)
		p.grow()
		p.grow()
		for i := range 9 {
			if got := tryGet(p, laneFast); got != (i < 8) {
				t.Errorf("caller %d got one: %v", i, got)
			}
		}
		for range 10 {
			p.shrink()
		}
		if p.allowed != 1 {
			t.Errorf("%d are allowed", p.allowed)
		}
	})
}

// If a caller stops waiting just when it is granted a start, other callers can still start
// instances.
func TestACallerThatGivesUpDoesNotCountAsStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		granted := make(chan *sandbox.Instance, 1)
		e := p.waiting[laneFast].PushBack(granted)
		p.mu.Lock()
		p.handOut()
		p.mu.Unlock()
		p.cancelWait(e, laneFast, granted)
		if p.starting != 0 || p.live != 0 || !tryGet(p, laneFast) {
			t.Errorf("%d are starting, %d are live", p.starting, p.live)
		}
	})
}

func TestACallerGetsTheRoomThatOtherPoolsGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := 0
		p := newPool(10, func() int { return room }, func() { room = 1 }, func(*sandbox.Instance) {})
		if i, _, err := p.get(t.Context(), laneFast); i != nil || err != nil {
			t.Errorf("got %v, %v", i, err)
		}
	})
}
