package sandbox

import (
	"runtime"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// cpu has the fuel and the slot of a call. Fuel bounds the amount of computation. Without a slot a
// call may use its first grant of fuel only. A waiting call has no slot.
type cpu struct {
	fuel
	life      *lifetime
	failures  *failures
	footprint *footprint // of the instance; larger while the call computes
	function  *function  // the running function
	queue     *slotQueue // of the tenant
	limit     int64      // of fuel; unlimited if only time is limited
}

// unlimited is more fuel than any call uses.
const unlimited = 1 << 62

// charge subtracts fuel for work that the host is about to do for the guest. Like the guest's own
// code, this work needs a slot once the first grant is used up.
func (c *cpu) charge(units int) {
	left := int64(api.DecodeI32(c.counter.Get())) - int64(units)
	c.counter.Set(api.EncodeI32(int32(left)))
	if left < 0 {
		c.tick()
	}
}

// tick is called by a guest that has used up its grant. It makes a new grant once the guest has a
// slot, or ends the call by a panic.
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

// left returns the number of units that the call may still use.
func (c *cpu) left() int64 { return c.limit - c.used }

// acquireSlot waits until the call has a slot, and ends the call by a panic if it is stopped
// meanwhile. A call that has a slot keeps it until its time slice is over. acquireSlot returns the
// current time, which is now if it did not wait.
func (c *cpu) acquireSlot(now time.Time) time.Time {
	f := &c.fuel
	if !f.slotSince.IsZero() {
		if now.Sub(f.slotSince) < timeSlice {
			return now
		}
		c.releaseSlot()
		runtime.Gosched() // lets the engine's goroutines run
		now = time.Now()
	}
	if !c.awaitSlot(now) {
		panic(errStopped)
	}
	return f.slotSince
}

// awaitSlot waits for a slot. It returns false if the call is stopped first.
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

// releaseSlot returns the slot when the guest stops computing, and revokes the rest of the grant:
// to compute again, the guest needs a slot.
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
	c.footprint.returnUnused() // before the slot is released, since it takes processor time
	cpuSlots.release()
}

// yield lets other goroutines run and other calls compute.
func (c *cpu) yield() {
	c.releaseSlot()
	runtime.Gosched()
}
