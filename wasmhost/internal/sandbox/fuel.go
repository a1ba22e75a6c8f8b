package sandbox

import (
	"runtime"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/internal/meter"
)

// The units of fuel that a call gets at a time. It begins with few, and gets twice as many
// while they last for less than minSlice, or half as many when they last for longer than
// maxSlice: what a unit pays for takes one nanosecond, or some microseconds.
const (
	firstFuel = meter.FirstFuel
	maxFuel   = 16 * firstFuel
	minSlice  = 20 * time.Microsecond
	maxSlice  = 200 * time.Microsecond
)

// turn is how long a call computes before it lets others of its plugin, and of all
// plugins, compute.
const turn = time.Millisecond

// processors are the places of calls that compute for long: one processor is left for the
// engine. A call waits for a place when it has used up its first fuel without a call of a
// host function.
var processors = make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1))

// fuel is what a call has got to compute with.
type fuel struct {
	counter api.MutableGlobal // what is left of granted; nil until the module's start function asks for more
	granted int32
	used    int64     // of what was granted before
	since   time.Time // when it was granted, from the second time on
	placed  time.Time // when the call got its place among processors; zero if it has none
}

// fill gives a call its first fuel.
func (f *fuel) fill(counter api.MutableGlobal) {
	f.counter, f.granted = counter, firstFuel
	f.counter.Set(firstFuel)
}

// total returns the units that were used.
func (f *fuel) total() int64 {
	if f.counter == nil {
		return 0
	}
	return f.used + int64(f.granted) - int64(api.DecodeI32(f.counter.Get()))
}

// tick is called by a guest that has used up its fuel. It returns when it may go on.
func (c *call) tick(guest api.Module) {
	f := &c.fuel
	if f.counter == nil { // in the start function, before the host knows the instance
		f.counter, f.granted = guest.ExportedGlobal(meter.FuelExport).(api.MutableGlobal), meter.FirstFuel
	}
	f.used = f.total()
	c.stopIfDue()
	c.compute()
	now := time.Now()
	if !f.since.IsZero() {
		switch took := now.Sub(f.since); {
		case took < minSlice:
			f.granted = min(2*f.granted, maxFuel)
		case took > maxSlice:
			f.granted = max(f.granted/2, 1)
		}
	}
	f.since = now
	f.counter.Set(api.EncodeI32(f.granted))
}

// compute waits until the guest may use a processor, and ends it when it is stopped
// meanwhile.
func (c *call) compute() {
	f := &c.fuel
	if !f.placed.IsZero() {
		if time.Since(f.placed) < turn {
			return
		}
		c.rest()
		runtime.Gosched()
	}
	select {
	case processors <- struct{}{}:
		f.placed = time.Now()
		f.since = time.Time{}
	case <-c.hard:
		panic(errStopped)
	}
}

// rest gives the place among processors back, because the guest computes no longer.
func (c *call) rest() {
	if !c.fuel.placed.IsZero() {
		<-processors
		c.fuel.placed = time.Time{}
	}
}
