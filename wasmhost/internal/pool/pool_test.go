package pool

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type instance struct{ _ byte } // not of size 0: each has an address of its own

// newTestPool returns a pool that counts the instances it closes.
func newTestPool(limit int, closed *int) *Pool[instance] {
	return New(limit, func(*instance) { *closed++ })
}

func TestInstancesAreGrantedInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		only := &instance{}
		if i, waited, err := p.Get(t.Context()); i != nil || waited || err != nil {
			t.Fatalf("the first caller got %v, %v, %v", i, waited, err)
		}
		order := make(chan int, 3)
		for n := range 3 {
			go func() {
				if i, _, _ := p.Get(t.Context()); i == only {
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
		p.Get(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, waited, err := p.Get(ctx); !waited || !errors.Is(err, ErrBusy) || time.Since(start) != time.Second/2 {
			t.Errorf("got %v, %v after %v", waited, err, time.Since(start))
		}
		stopped, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, waited, err := p.Get(stopped); !waited || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", waited, err)
		}
		p.Put(nil) // the instance was closed
		if i, waited, err := p.Get(t.Context()); i != nil || waited || err != nil {
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
			_, waited, err = p.Get(ctx)
			return waited, err
		}
		for range 2 {
			p.Get(t.Context())
		}
		for range 100 { // each is lent for as long as a probe may take
			p.Observe(time.Second)
		}
		for range 6 { // three rounds of two instances
			go get()
		}
		synctest.Wait()
		if waited, err := get(); waited || !errors.Is(err, ErrBusy) {
			t.Errorf("got %v, %v", waited, err)
		}
		for range 100 {
			p.Observe(time.Millisecond)
		}
		if waited, err := get(); !waited || !errors.Is(err, ErrBusy) {
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
		p.Grow()
		for range 3 {
			p.Get(t.Context())
		}
		for range 3 {
			p.Put(&instance{})
		}
		for range 4 {
			time.Sleep(maxIdle / 2)
			i, _, _ := p.Get(t.Context())
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

func TestAPoolGrowsStepByStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, running := 0, make(chan *instance, 100)
		p := newTestPool(10, &closed)
		for range 20 {
			go func() {
				if i, _, err := p.Get(t.Context()); err == nil {
					running <- i
				}
			}()
		}
		for _, want := range []int{startInstances, 8, 10, 10} {
			synctest.Wait()
			if got := len(running); got != want {
				t.Fatalf("%d run, want %d", got, want)
			}
			p.Grow()
		}
		p.Shrink()
		for range 7 { // of 10, and 4 may stay: one waiting caller gets an instance
			p.Put(&instance{})
			<-running
		}
		synctest.Wait()
		if got := len(running); got != startInstances || closed != 10-startInstances {
			t.Errorf("%d run and %d were closed", got, closed)
		}
		for range 13 { // the rest
			p.Put(nil)
			synctest.Wait()
		}
	})
}
