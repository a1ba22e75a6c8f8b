package sandbox

import (
	"runtime"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// cpu is what a call computes with: fuel, which bounds how much it computes, and a slot, without which
// it has its first fuel only. While the call waits it has no slot.
type cpu struct {
	fuel
	life      *lifetime
	failures  *failures
	footprint *footprint // of the instance; counts more while the call computes
	function  *function  // that runs
	queue     *slotQueue // of the tenant
	limit     int64      // of fuel; unlimited where only time is limited
}

// unlimited is more fuel than any call uses.
const unlimited = 1 << 62

// charge lets the guest pay for what the host computes next on its behalf: like its own code,
// that needs a slot once the first fuel is used up.
func (c *cpu) charge(units int) {
	left := int64(api.DecodeI32(c.counter.Get())) - int64(units)
	c.counter.Set(api.EncodeI32(int32(left)))
	if left < 0 {
		c.tick()
	}
}

// tick is called by a guest that has used up its fuel. It returns when it may go on.
func (c *cpu) tick() {
	f := &c.fuel
	f.use()
	c.life.stopIfDue()
	left := c.left()
	if left <= 0 {
		c.failures.reachLimit("fuel", abi.ENOSPC)
		panic(errLimit)
	}
	c.footprint.countStack(c.function)
	now := time.Now()
	if !f.grantedAt.IsZero() {
		switch took := f.endSlice(now); {
		case took < minSlice:
			f.next = min(2*f.next, maxFuel)
		case took > maxSlice:
			f.next = max(f.next/2, 1)
		}
	}
	f.grantedAt = c.acquireSlot(now)
	f.grant(int32(min(int64(f.next), left)))
}

// left returns how much more fuel the call may use.
func (c *cpu) left() int64 { return c.limit - c.used }

// acquireSlot waits until the guest may compute, and ends it when it is stopped meanwhile.
// A guest that has a slot keeps it unless others wait and its time slice is over. It
// returns the time, which is now if it did not wait.
func (c *cpu) acquireSlot(now time.Time) time.Time {
	f := &c.fuel
	if !f.slotSince.IsZero() {
		if now.Sub(f.slotSince) < timeSlice {
			return now
		}
		c.releaseSlot()
		runtime.Gosched() // to the engine's goroutines
		now = time.Now()
	}
	if !c.awaitSlot(now) {
		panic(errStopped)
	}
	return f.slotSince
}

// awaitSlot waits for a slot, and returns false if the call is stopped before it has one.
func (c *cpu) awaitSlot(now time.Time) bool {
	acquired := cpuSlots.acquire(c.queue, c.life.stopped)
	granted := time.Now()
	c.waited += granted.Sub(now)
	if acquired {
		c.slotSince = granted
		c.footprint.useAll()
	}
	return acquired
}

// releaseSlot gives the slot back, because the guest does not compute. What is left of its
// fuel goes with it: computing again needs a slot.
func (c *cpu) releaseSlot() {
	f := &c.fuel
	if f.slotSince.IsZero() {
		return
	}
	f.use()
	if !f.grantedAt.IsZero() {
		f.endSlice(time.Now())
	}
	f.slotSince = time.Time{}
	c.footprint.returnUnused() // with the slot, since it takes processor time
	cpuSlots.release()
}

// yield lets other goroutines run, and other calls compute.
func (c *cpu) yield() {
	c.releaseSlot()
	runtime.Gosched()
}
