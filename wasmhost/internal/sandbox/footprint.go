package sandbox

import (
	"github.com/sonde-probe/sonde/wasmhost/internal/image"
	"github.com/sonde-probe/sonde/wasmhost/internal/module"
)

// footprint is the memory that an instance uses, as the budget counts it.
type footprint struct {
	account   *account
	memory    *image.Memory
	used      int64 // counted, except for returned
	returned  int64 // to the budget, while the call waits: see returnUnused
	uncounted bool  // it uses more memory than is counted
	running   *cpu  // of the call that runs; nil: none
}

// reserve counts memory that the instance uses, and returns ErrNoMemory if there is none left.
func (f *footprint) reserve(bytes int64) error {
	if !totalMemory.reserve(f.account, bytes, f.releaseSlot) {
		return ErrNoMemory
	}
	f.used += bytes
	return nil
}

// releaseSlot gives back the slot of the call that runs, if one does.
func (f *footprint) releaseSlot() {
	if f.running != nil {
		f.running.releaseSlot()
	}
}

// countStack counts what the stack of a function that runs has grown by, and ends the call when that is too
// much. Until the next tick a stack can grow up to wazero's own bound, but only in calls that have a slot.
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

// writtenByHost is how many bytes the host writes at most to the memory of an instance whose call
// waits.
const writtenByHost = 64 << 10

// returnUnused counts an instance whose call waits by what it has changed of its memory, if memory
// is scarce: while it does not compute, it changes nothing more.
func (f *footprint) returnUnused() {
	if f.returned == 0 && !totalMemory.isScarce() {
		return
	}
	const rounding = 2 * module.PageSize // the system's pages at both ends of what the host writes
	unused := max(f.memory.Unused()-writtenByHost-rounding, 0)
	totalMemory.use(f.account, f.returned-unused, 0)
	f.returned = unused
}

// useAll counts an instance whose call computes by all that it may change. Together, such instances
// may exceed the limit: they are no more than there are slots.
func (f *footprint) useAll() {
	if f.returned > 0 {
		totalMemory.use(f.account, f.returned, 0)
		f.returned = 0
	}
}

// tryUseAll is useAll for an instance that does not compute. It returns false if the memory is no longer
// left.
func (f *footprint) tryUseAll() bool {
	if f.returned > 0 {
		if !totalMemory.tryReserve(f.account, f.returned, false) {
			return false
		}
		f.returned = 0
	}
	return true
}

// release returns the memory to the budget.
func (f *footprint) release() { totalMemory.releaseInstance(f.account, f.used-f.returned) }
