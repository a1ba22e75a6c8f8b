package wasmhost

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// newTestPool returns a pool that counts what it closes.
func newTestPool(limit int, closed *int) *pool {
	p := newPool(limit)
	p.close = func(*instance) { *closed++ }
	return p
}

func TestInstancesAreGivenInTheOrderOfAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		only := &instance{}
		if i, waited, err := p.take(t.Context()); i != nil || waited || err != nil {
			t.Fatalf("the first one got %v, %v, %v", i, waited, err)
		}
		order := make(chan int, 3)
		for n := range 3 {
			go func() {
				if i, _, _ := p.take(t.Context()); i == only {
					order <- n
					p.give(i)
				}
			}()
			synctest.Wait()
		}
		p.give(only)
		for want := range 3 {
			if got := <-order; got != want {
				t.Errorf("%d came as number %d", got, want)
			}
		}
		synctest.Wait()
		if idle, live, waiting := p.sizes(); idle != 1 || live != 1 || waiting != 0 {
			t.Errorf("left are %d idle, %d live, %d waiting", idle, live, waiting)
		}
	})
}

func TestAWaiterThatLeavesIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(1, new(int))
		p.take(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, waited, err := p.take(ctx); !waited || !errors.Is(err, errBusy) || time.Since(began) != time.Second/2 {
			t.Errorf("got %v, %v after %v", waited, err, time.Since(began))
		}
		stopped, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, waited, err := p.take(stopped); !waited || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v", waited, err)
		}
		p.give(nil) // the instance is lost
		if i, waited, err := p.take(t.Context()); i != nil || waited || err != nil {
			t.Errorf("got %v, %v, %v", i, waited, err)
		}
	})
}

func TestWhoWouldWaitInVainDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(2, new(int))
		wait := func() (waited bool, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, waited, err = p.take(ctx)
			return waited, err
		}
		for range 2 {
			p.take(t.Context())
		}
		for range 100 { // each is out for as long as a probe may take
			p.used(time.Second)
		}
		for range 6 { // three turns of two instances
			go wait()
		}
		synctest.Wait()
		if waited, err := wait(); waited || !errors.Is(err, errBusy) {
			t.Errorf("got %v, %v", waited, err)
		}
		for range 100 {
			p.used(time.Millisecond)
		}
		if waited, err := wait(); !waited || !errors.Is(err, errBusy) {
			t.Errorf("with faster calls: got %v, %v", waited, err)
		}
		p.give(nil)
		p.give(nil)
	})
}

func TestInstancesThatNobodyNeedsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		p := newTestPool(3, &closed)
		p.widen()
		for range 3 {
			p.take(t.Context())
		}
		for range 3 {
			p.give(&instance{})
		}
		for range 4 {
			time.Sleep(idleTime / 2)
			i, _, _ := p.take(t.Context())
			p.give(i)
		}
		if idle, live, _ := p.sizes(); closed != 2 || idle != 1 || live != 1 {
			t.Errorf("%d were closed, %d are idle, %d live", closed, idle, live)
		}
		p.drain()
		if _, live, _ := p.sizes(); closed != 3 || live != 0 {
			t.Errorf("%d were closed, %d are live", closed, live)
		}
	})
}

func TestAPluginGetsItsInstancesOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed, running := 0, make(chan *instance, 100)
		p := newTestPool(10, &closed)
		for range 20 {
			go func() {
				if i, _, err := p.take(t.Context()); err == nil {
					running <- i
				}
			}()
		}
		for _, want := range []int{trialInstances, 8, 10, 10} {
			synctest.Wait()
			if got := len(running); got != want {
				t.Fatalf("%d run, want %d", got, want)
			}
			p.widen()
		}
		p.narrow()
		for range 7 { // of 10, and 4 may stay: one of those that wait gets its turn
			p.give(&instance{})
			<-running
		}
		synctest.Wait()
		if got := len(running); got != trialInstances || closed != 10-trialInstances {
			t.Errorf("%d run and %d were closed", got, closed)
		}
		for range 13 { // the rest
			p.give(nil)
			synctest.Wait()
		}
	})
}
