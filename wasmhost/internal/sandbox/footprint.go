package sandbox

import (
	"github.com/sonde-probe/sonde/wasmhost/internal/image"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// footprint is the memory of an instance, as counted in the budget.
type footprint struct {
	account   *account
	memory    *image.Memory
	used      int64 // bytes counted, including returned
	returned  int64 // bytes returned to the budget while the call waits: see returnUnused
	uncounted bool  // the instance uses more memory than is counted
	running   *cpu  // of the running call; nil if there is none
}

// reserve counts more memory for the instance. It returns ErrNoMemory if the budget has none left.
func (f *footprint) reserve(bytes int64) error {
	if !totalMemory.reserve(f.account, bytes, f.releaseSlot) {
		return ErrNoMemory
	}
	f.used += bytes
	return nil
}

// releaseSlot releases the slot of the running call, if any.
func (f *footprint) releaseSlot() {
	if f.running != nil {
		f.running.releaseSlot()
	}
}

// countStack counts the growth of a running function's stack, and ends the call by a panic if the stack is
// too large or no memory is left. Until the next tick a stack can grow up to wazero's own bound, but only
// in calls that have a slot.
func (f *footprint) countStack(running *function) {
	size := running.stackSize()
	if size <= running.stack {
		return
	}
	err := errStackOverflow
	if size <= maxStack {
		err = f.reserve(int64(size - running.stack))
	}
	if err != nil {
		f.uncounted = true
		panic(err)
	}
	running.stack = size
}

// writtenByHost is the maximum number of bytes that the host writes to the memory of an instance
// while its call waits.
const writtenByHost = 64 << 10

// returnUnused returns to the budget the unmodified memory of an instance whose call is about to
// wait, if memory is scarce: a call that does not compute modifies nothing more.
func (f *footprint) returnUnused() {
	if f.returned == 0 && !totalMemory.isScarce() {
		return
	}
	const rounding = 2 * module.PageSize // partial system pages at both ends of the host's writes
	unused := max(f.memory.Unused()-writtenByHost-rounding, 0)
	totalMemory.use(f.account, f.returned-unused, 0)
	f.returned = unused
}

// useAll counts all memory of an instance whose call is about to compute. Such instances may exceed
// the limit together, but there are no more of them than slots.
func (f *footprint) useAll() {
	if f.returned > 0 {
		totalMemory.use(f.account, f.returned, 0)
		f.returned = 0
	}
}

// tryUseAll is like useAll for an instance that does not compute. It returns false if the budget no
// longer has the memory.
func (f *footprint) tryUseAll() bool {
	if f.returned > 0 {
		if !totalMemory.tryReserve(f.account, f.returned, false) {
			return false
		}
		f.returned = 0
	}
	return true
}

// release returns all memory to the budget.
func (f *footprint) release() { totalMemory.releaseInstance(f.account, f.used-f.returned) }
