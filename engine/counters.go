package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// counters are what Stats shows. Engine.mu guards them.
type counters struct {
	attempts map[attemptKey]*histogram
	lateness *histogram
	overrun  uint64
	late     uint64
	shed     uint64
	busy     time.Duration
	panics   uint64
	dropped  uint64
}

type attemptKey struct {
	kind    probe.Kind
	handler string
	outcome probe.Outcome
}

func (k attemptKey) compare(o attemptKey) int {
	return cmp.Or(cmp.Compare(k.kind, o.kind), cmp.Compare(k.handler, o.handler), cmp.Compare(k.outcome, o.outcome))
}

func newCounters() counters {
	return counters{attempts: map[attemptKey]*histogram{}, lateness: newHistogram()}
}

// attempt counts one. Counters go on when a probe is removed, so that they never
// fall; there is one for each handler name, of which there are few.
func (c *counters) attempt(kind probe.Kind, handler string, res *probe.Result) {
	key := attemptKey{kind, handler, res.Outcome}
	h := c.attempts[key]
	if h == nil {
		h = newHistogram()
		c.attempts[key] = h
	}
	h.add(res.Took)
}

// Stats returns a copy of the engine's counters.
func (e *Engine) Stats() Stats {
	e.board.RLock()
	probes := e.board.probes
	e.board.RUnlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &e.counters
	st := Stats{
		Lateness: c.lateness.copy(), Probes: probes, InFlight: e.crowd.workers + e.crowd.steppers, Queued: e.crowd.queued(),
		Overrun: c.overrun, Late: c.late, Shed: c.shed, Busy: c.busy, Panics: c.panics, Dropped: c.dropped,
	}
	for k, h := range c.attempts {
		st.Attempts = append(st.Attempts, AttemptStats{k.kind, k.handler, k.outcome, h.copy()})
	}
	slices.SortFunc(st.Attempts, func(a, b AttemptStats) int {
		return attemptKey{a.Kind, a.HandlerName, a.Outcome}.compare(attemptKey{b.Kind, b.HandlerName, b.Outcome})
	})
	return st
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

// histogram counts durations by bounds.
type histogram struct {
	counts []uint64
	sum    time.Duration
}

func newHistogram() *histogram { return &histogram{counts: make([]uint64, len(bounds)+1)} }

func (h *histogram) add(d time.Duration) {
	at, _ := slices.BinarySearch(bounds, d)
	h.counts[at]++
	h.sum += d
}

func (h *histogram) copy() Histogram {
	return Histogram{Bounds: bounds, Counts: slices.Clone(h.counts), Sum: h.sum}
}
