package sandbox

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tetratelabs/wazero/api"
)

func TestPluginsGetSlotsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots{limit: func() int { return 1 }}
		var busy, other slotQueue
		s.acquire(&busy, nil)
		var order []string
		wait := func(name string, q *slotQueue) {
			go func() {
				s.acquire(q, nil)
				order = append(order, name)
				s.release()
			}()
			synctest.Wait()
		}
		for range 3 {
			wait("busy", &busy)
		}
		wait("other", &other)
		wait("other", &other)
		s.release()
		synctest.Wait()
		if want := []string{"busy", "other", "busy", "other", "busy"}; !slices.Equal(order, want) {
			t.Errorf("got %v", order)
		}
		if s.used != 0 || len(s.waiting) != 0 {
			t.Errorf("%d slots are used, %d plugins wait", s.used, len(s.waiting))
		}
	})
}

func TestACallThatIsStoppedGetsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots{limit: func() int { return 1 }}
		var q slotQueue
		s.acquire(&q, nil)
		stop := make(chan struct{})
		got := make(chan bool)
		go func() { got <- s.acquire(&q, stop) }()
		synctest.Wait()
		close(stop)
		if <-got || len(s.waiting) != 0 {
			t.Error("a stopped call has a slot, or waits on")
		}
		s.release()
		if !s.acquire(&q, nil) || s.used != 1 {
			t.Errorf("%d slots are used", s.used)
		}
	})
}

func TestSlotsFollowTheNumberOfProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := 1
		s := slots{limit: func() int { return limit }}
		var q slotQueue
		s.acquire(&q, nil)
		go s.acquire(&q, nil)
		synctest.Wait()
		limit = 3
		s.acquire(&q, nil)
		synctest.Wait()
		if s.used != 3 {
			t.Errorf("%d slots are used", s.used)
		}
	})
}

// holdSlots takes all slots until the returned function is called.
func holdSlots() (release func()) {
	var others slotQueue
	n := cpuSlots.limit()
	for range n {
		cpuSlots.acquire(&others, nil)
	}
	return func() {
		for range n {
			cpuSlots.release()
		}
	}
}

// computing is a module of one page whose sonde_run returns 1 after a while of arithmetic:
// it needs a slot.
const computing = "\x00asm\x01\x00\x00\x00" +
	"\x01\x05\x01\x60\x00\x01\x7f" +
	"\x03\x02\x01\x00" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x25\x03\x06memory\x02\x00\x0csonde_abi_v1\x00\x00\x09sonde_run\x00\x00" +
	"\x0a\x19\x01\x17\x01\x01\x7f" + // code: one local, counted to 100,000 in a loop
	"\x03\x40\x20\x00\x41\x01\x6a\x22\x00\x41\xa0\x8d\x06\x48\x0d\x00\x0b\x41\x01\x0b"

// A plugin that waits for others is not to blame, and neither is the target.
func TestACallWithoutAProcessorIsStarved(t *testing.T) {
	i := startModule(t, computing)
	release := holdSlots()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r := i.Run(ctx, Attempt{State: i.sandbox.NewState()})
	release()
	if r.Ending != Stopped || !r.Starved || r.Waited == 0 {
		t.Errorf("got %+v", r)
	}
	i = startModule(t, computing)
	if r := i.Run(t.Context(), Attempt{State: i.sandbox.NewState()}); r.Ending != Returned || r.Value != 1 || r.Fuel < 100000 {
		t.Errorf("with a processor: got %+v", r)
	}
}

// A system that runs other threads while a guest has a slot takes that time from the guest.
func TestACallThatTheSystemDoesNotRunIsStarved(t *testing.T) {
	i := newInstance(t)
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond:                   0,
		longestSlice:                       0,
		longestSlice + 30*time.Millisecond: 30 * time.Millisecond,
	} {
		for ending, end := range map[string]func(*call){
			"tick":      func(c *call) { c.tick() },
			"host call": (*call).releaseSlot,
		} {
			synctest.Test(t, func(t *testing.T) {
				c := endedCall(i)
				c.hard = make(chan struct{})
				defer c.finish()
				c.fuel.fill(i.fuel, firstFuel)
				c.tick()
				time.Sleep(took) // the guest does not run
				end(c)
				c.releaseSlot()
				if c.fuel.delayed != want || c.fuel.isStarved(took) != (want > took/2) {
					t.Errorf("slice of %v, ended by a %s: delayed by %v, want %v", took, ending, c.fuel.delayed, want)
				}
			})
		}
	}
}

// A call that computes after it has given its slot back needs one again, at once: otherwise
// guests that call the host again and again would have all processors.
func TestAHostCallThatMayBlockEndsTheSlotAndItsFuel(t *testing.T) {
	i := newInstance(t)
	c := endedCall(i)
	c.hard = make(chan struct{})
	defer c.finish()
	c.fuel.fill(i.fuel, c.fuelLeft())
	left := func() int32 { return api.DecodeI32(i.fuel.Get()) }
	spend := func(n int32) { i.fuel.Set(api.EncodeI32(left() - n)) }
	spend(firstFuel + 1)
	c.tick()
	spend(10)
	if c.fuel.slotSince.IsZero() || left() <= 0 {
		t.Fatalf("no slot, or %d units", left())
	}
	before := cpuSlots.used
	c.releaseSlot()
	if cpuSlots.used != before-1 || left() != 0 || c.fuel.total() != firstFuel+11 {
		t.Errorf("%d slots, %d units are left, %d are used", cpuSlots.used, left(), c.fuel.total())
	}
	c.releaseSlot()
	spend(1)
	c.tick()
	if c.fuel.slotSince.IsZero() || c.fuel.total() != firstFuel+12 {
		t.Errorf("no slot again, or %d units used", c.fuel.total())
	}
	c.releaseSlot()
}

func TestFunctionsThatNeverBlockExist(t *testing.T) {
	native, wasi := nativeFunctions(), wasiFunctions()
	for name := range neverBlocks {
		if native[name] == nil && wasi[name] == nil {
			t.Errorf("there is no function %s", name)
		}
	}
}
