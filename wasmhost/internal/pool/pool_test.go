package pool

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type instance struct{ _ byte } // not of size 0: each has an address of its own

// newTestPool returns a pool that counts the instances it closes.
func newTestPool(limit int, closed *int) *Pool[instance] {
	return New(limit, func() int { return limit }, func() {}, func(*instance) { *closed++ })
}

func TestInstancesAreGrantedInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		only := &instance{}
		if i, waited, err := p.Get(t.Context(), First); i != nil || waited || err != nil {
			t.Fatalf("the first caller got %v, %v, %v", i, waited, err)
		}
		order := make(chan int, 3)
		for n := range 3 {
			go func() {
				if i, _, _ := p.Get(t.Context(), First); i == only {
					order <- n
					p.Put(i)
				}
			}()
			synctest.Wait()
		}
		p.Put(only)
		for want := range 3 {
			if got := <-order; got != want {
				t.Errorf("caller %d was served as number %d", got, want)
			}
		}
		synctest.Wait()
		if idle, live, waiting := p.Counts(); idle != 1 || live != 1 || waiting != 0 {
			t.Errorf("%d idle, %d live, %d waiting", idle, live, waiting)
		}
	})
}

func TestACallerThatStopsWaitingIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		p.Get(t.Context(), First)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, waited, err := p.Get(ctx, First); !waited || !errors.Is(err, errBusy) || time.Since(start) != time.Second/2 {
			t.Errorf("got %v, %v after %v", waited, err, time.Since(start))
		}
		stopped, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, waited, err := p.Get(stopped, First); !waited || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", waited, err)
		}
		p.Put(nil) // the instance was closed
		if i, waited, err := p.Get(t.Context(), First); i != nil || waited || err != nil {
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
			_, waited, err = p.Get(ctx, First)
			return waited, err
		}
		for range 2 {
			p.Get(t.Context(), First)
		}
		for range 100 { // each is lent for as long as a probe may take
			p.Observe(First, time.Second)
		}
		for range 6 { // three rounds of two instances
			go get()
		}
		synctest.Wait()
		if waited, err := get(); waited || !errors.Is(err, errBusy) {
			t.Errorf("got %v, %v", waited, err)
		}
		for range 100 {
			p.Observe(First, time.Millisecond)
		}
		if waited, err := get(); !waited || !errors.Is(err, errBusy) {
			t.Errorf("with faster calls: got %v, %v", waited, err)
		}
		p.Put(nil)
		p.Put(nil)
	})
}

func TestUnusedInstancesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		p := newTestPool(3, &closed)
		for range 3 {
			p.Get(t.Context(), Fast)
			p.Started()
		}
		for range 3 {
			p.Put(&instance{})
		}
		for range 4 {
			time.Sleep(maxIdle / 2)
			i, _, _ := p.Get(t.Context(), First)
			p.Put(i)
		}
		if idle, live, _ := p.Counts(); closed != 2 || idle != 1 || live != 1 {
			t.Errorf("%d were closed, %d are idle, %d live", closed, idle, live)
		}
		p.CloseIdle()
		if _, live, _ := p.Counts(); closed != 3 || live != 0 {
			t.Errorf("%d were closed, %d are live", closed, live)
		}
	})
}

func TestFewInstancesAreStartedAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(10, new(int))
		started := make(chan *instance, 100)
		for range 20 {
			go func() {
				i, _, _ := p.Get(t.Context(), Fast)
				started <- i
			}()
		}
		for want := maxStarting; want <= 10; want++ {
			synctest.Wait()
			if got := len(started); got != want {
				t.Fatalf("%d start, want %d", got, want)
			}
			p.Started()
		}
		for range 20 {
			p.Put(&instance{})
		}
	})
}

// get is Get for a caller that does not wait.
func get(p *Pool[instance], lane Lane) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	i, _, err := p.Get(ctx, lane)
	if err == nil && i == nil {
		p.Started()
	}
	return err == nil
}

func TestSlowCallersLeaveAReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, p := range map[string]*Pool[instance]{
			"limited by number": newTestPool(16, new(int)),
			"limited by memory": func() (p *Pool[instance]) {
				p = New(1000, func() int { return 16 - p.live }, func() {}, func(*instance) {})
				return p
			}(),
		} {
			lent := map[Lane]int{}
			for _, lane := range []Lane{Slow, First, Fast} {
				for get(p, lane) {
					lent[lane]++
				}
			}
			if lent[Slow] != 12 || lent[First] != 2 || lent[Fast] != 2 {
				t.Errorf("%s: slow, first and fast callers got %d, %d and %d", name, lent[Slow], lent[First], lent[Fast])
			}
			p.Put(nil)
			if get(p, Slow) || !get(p, Fast) {
				t.Errorf("%s: a slow caller took what was reserved", name)
			}
		}
	})
}

func TestFastCallersGetInstancesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		p.Get(t.Context(), Slow)
		p.Started()
		var order []Lane
		for _, lane := range []Lane{Slow, First, Fast} {
			go func() {
				i, _, _ := p.Get(t.Context(), lane)
				order = append(order, lane)
				p.Put(i)
			}()
			synctest.Wait()
		}
		p.Put(&instance{})
		synctest.Wait()
		if want := []Lane{Fast, First, Slow}; !slices.Equal(order, want) {
			t.Errorf("got %v", order)
		}
	})
}

func TestAPoolShrinksAndGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		p := newTestPool(64, &closed)
		for range 16 {
			get(p, Fast)
		}
		p.Shrink()
		for range 8 {
			p.Put(&instance{})
		}
		if closed != 8 || get(p, Fast) {
			t.Errorf("%d were closed, or one more was lent", closed)
		}
		if p.Grow(); get(p, Fast) {
			t.Error("it grows at once")
		}
		time.Sleep(growPause)
		p.Grow()
		p.Grow()
		for i := range 9 {
			if got := get(p, Fast); got != (i < 8) {
				t.Errorf("caller %d got one: %v", i, got)
			}
		}
		for range 10 {
			p.Shrink()
		}
		if p.allowed != 1 {
			t.Errorf("%d are allowed", p.allowed)
		}
	})
}

// A caller that stops waiting when it was to start an instance lets others start theirs.
func TestACallerThatGivesUpDoesNotCountAsStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		granted := make(chan *instance, 1)
		e := p.waiting[Fast].PushBack(granted)
		p.mu.Lock()
		p.handOut()
		p.mu.Unlock()
		p.cancelWait(e, Fast, granted)
		if p.starting != 0 || p.live != 0 || !get(p, Fast) {
			t.Errorf("%d are starting, %d are live", p.starting, p.live)
		}
	})
}

func TestACallerGetsTheRoomThatOtherPoolsGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := 0
		p := New(10, func() int { return room }, func() { room = 1 }, func(*instance) {})
		if i, _, err := p.Get(t.Context(), Fast); i != nil || err != nil {
			t.Errorf("got %v, %v", i, err)
		}
	})
}
