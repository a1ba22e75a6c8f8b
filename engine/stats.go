package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Stats has an engine's counters since New. It is a copy.
type Stats struct {
	Attempts  []AttemptStats // one for each kind, handler name and outcome that occurred, sorted in that order
	Lateness  Histogram      // from the due time of an attempt to its start
	Probes    int            // number of probes
	InFlight  int            // attempts in flight
	Queued    int            // due attempts that wait for an attempt in flight to finish
	Overrun   uint64         // attempts skipped because the probe's previous attempt was still in flight
	Late      uint64         // attempts skipped because the engine was more than a period late
	Shed      uint64         // attempts of passing probes skipped because the engine was late
	Busy      time.Duration  // time for which the goroutine that starts attempts was awake
	Panics    uint64         // handlers that panicked or called runtime.Goexit
	Dropped   uint64         // results about an earlier instance or a replaced probe, which were discarded
	Ejected   int            // number of ejected targets: see Engine.Observe
	Ejections uint64         // number of ejections of targets
	Flaps     uint64         // flaps of targets with a damping rule: see Change.Dampings
	Damped    int            // number of damped targets
	Dampings  uint64         // number of times a target was damped
	Health    Health         // health of the engine itself
}

// AttemptStats has the durations of the attempts with a kind, handler and outcome.
type AttemptStats struct {
	Kind        probe.Kind
	HandlerName string
	Outcome     probe.Outcome
	Durations   Histogram
}

// Histogram counts durations.
type Histogram struct {
	Bounds []time.Duration // upper bounds, inclusive and ascending; shared, read-only
	Counts []uint64        // by bound, plus one for durations above the last bound
	Sum    time.Duration
}

// Count returns the number of durations.
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

// LoopDelay returns how late the engine's loop is: the time since its next pass was due, to start or complete attempts. It is 0
// while nothing is due, and while Run is not running. A delay of seconds means that the loop hangs, or that the system does not
// schedule it. LoopDelay takes no lock.
func (e *Engine) LoopDelay() time.Duration {
	sc := e.scheduler
	due := sc.passDue.Load()
	if due == 0 {
		return 0
	}
	return max(time.Duration(sc.clock.Now()-due)-sc.clock.Suspended(), 0)
}

// counters are the counters of Stats that are not in the schedule.
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

// attempt counts an attempt. The counters of a removed probe are kept, so that they never decrease. There is one set for each
// handler name, of which there are few.
func (c *counters) attempt(kind probe.Kind, handler string, res *probe.Result) {
	key := attemptKey{kind, handler, res.Outcome}
	h := c.attempts[key]
	if h == nil {
		h = newHistogram()
		c.attempts[key] = h
	}
	h.add(res.Took)
}

// bounds are the bounds of all histograms: those of the kubelet for probe durations, which are Prometheus' defaults, and finer
// ones below.
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
