package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Stats is a copy of an engine's counters since New.
type Stats struct {
	Attempts  []AttemptStats // one for each kind, handler name and outcome seen, in that order
	Lateness  Histogram      // from when an attempt was due until it started
	Probes    int            // how many probes there are
	InFlight  int            // attempts in flight
	Queued    int            // attempts that are due and wait for one in flight to end
	Overrun   uint64         // attempts skipped because the probe's attempt before was still in flight
	Late      uint64         // attempts skipped because the engine was more than a period late
	Shed      uint64         // attempts of passing probes skipped because the engine was late
	Busy      time.Duration  // how long the goroutine that starts attempts was awake
	Panics    uint64         // handlers that panicked or called runtime.Goexit
	Dropped   uint64         // results about an earlier instance or a replaced probe
	Ejected   int            // targets that are ejected: see Engine.Observe
	Ejections uint64         // of targets, by what gateways have observed
	Flaps     uint64         // of targets that are to be damped: see Change.Dampings
	Damped    int            // targets that are damped
	Dampings  uint64         // how often a target was damped
	Health    Health         // whether the engine itself is well
}

// AttemptStats counts and times the attempts of a kind, handler and outcome.
type AttemptStats struct {
	Kind        probe.Kind
	HandlerName string
	Outcome     probe.Outcome
	Durations   Histogram
}

// Histogram counts durations.
type Histogram struct {
	Bounds []time.Duration // upper bounds, inclusive and ascending; shared, read-only
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

// Stats returns a copy of the engine's counters.
func (e *Engine) Stats() Stats {
	probes, ejected, sc, h := e.registry.count(), e.registry.ejectedCount(), e.scheduler, e.Health()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	c, s := &sc.counters, sc.timetable.schedule
	st := Stats{
		Lateness: c.lateness.copy(), Probes: probes, InFlight: s.InFlight(), Queued: s.Queued(),
		Overrun: s.Overrun, Late: s.Late, Shed: s.Shed, Busy: c.busy, Panics: c.panics, Dropped: c.dropped,
		Ejected: ejected, Ejections: sc.summaries.ejections.count, Flaps: sc.summaries.flaps, Damped: sc.summaries.penalties.damped, Dampings: sc.summaries.dampings, Health: h,
	}
	for k, h := range c.attempts {
		st.Attempts = append(st.Attempts, AttemptStats{k.kind, k.handler, k.outcome, h.copy()})
	}
	slices.SortFunc(st.Attempts, func(a, b AttemptStats) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.HandlerName, b.HandlerName), cmp.Compare(a.Outcome, b.Outcome))
	})
	return st
}

// LoopDelay returns how late the engine's loop is: the time since it should have run, to
// start attempts or to complete them. It is 0 while nothing is due, and while Run does not
// run. A delay of seconds means that the loop hangs, or that the system does not run it.
// LoopDelay takes no lock.
func (e *Engine) LoopDelay() time.Duration {
	sc := e.scheduler
	due := sc.passDue.Load()
	if due == 0 {
		return 0
	}
	return max(time.Duration(sc.clock.Now()-due)-sc.clock.Suspended(), 0)
}

// counters are what Stats shows, beside the schedule's own.
type counters struct {
	attempts map[attemptKey]*Histogram
	lateness *Histogram
	busy     time.Duration
	panics   uint64
	dropped  uint64
}

type attemptKey struct {
	kind    probe.Kind
	handler string
	outcome probe.Outcome
}

// attempt counts an attempt. The counters of a removed probe stay, so that they never
// decrease; there is one for each handler name, of which there are few.
func (c *counters) attempt(kind probe.Kind, handler string, res *probe.Result) {
	key := attemptKey{kind, handler, res.Outcome}
	h := c.attempts[key]
	if h == nil {
		h = newHistogram()
		c.attempts[key] = h
	}
	h.add(res.Took)
}

// bounds are those of every histogram: the kubelet's for durations of probes,
// which are Prometheus' defaults, and finer ones below.
var bounds = []time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

func newHistogram() *Histogram {
	return &Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

func (h *Histogram) add(d time.Duration) {
	at, _ := slices.BinarySearch(h.Bounds, d)
	h.Counts[at]++
	h.Sum += d
}

func (h *Histogram) copy() Histogram {
	return Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
}
