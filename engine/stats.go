package engine

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Stats is a copy of an engine's counters since New.
type Stats struct {
	Attempts []AttemptStats // one for each kind, handler name and outcome seen, in that order
	Lateness Histogram      // from when an attempt was due to its start
	Probes   int            // how many there are
	InFlight int            // attempts under way
	Queued   int            // attempts that are due and wait for one under way to end
	Overrun  uint64         // turns skipped because the probe's attempt before was still under way
	Late     uint64         // turns skipped because the engine was too late for them
	Shed     uint64         // turns of passing probes given up because the engine was late
	Busy     time.Duration  // how long the goroutine that starts attempts was awake
	Panics   uint64         // handlers that panicked
	Dropped  uint64         // answers about an earlier instance or a replaced probe
}

// AttemptStats counts and times the attempts of a kind, handler and outcome.
type AttemptStats struct {
	Kind        probe.Kind
	HandlerName string
	Outcome     probe.Outcome
	Took        Histogram
}

// Histogram counts durations.
type Histogram struct {
	Bounds []time.Duration // upper bounds, inclusive and rising; shared, read-only
	Counts []uint64        // by bound, and one more for what is above the last
	Sum    time.Duration
}

// Count returns how many durations were counted.
func (h Histogram) Count() uint64 {
	var n uint64
	for _, c := range h.Counts {
		n += c
	}
	return n
}
