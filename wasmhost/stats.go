package wasmhost

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// Stats are a plugin's numbers at one time, for metrics. Counts only grow.
type Stats struct {
	Compiled bool          // it is ready to run
	Compile  time.Duration // what compiling, or reading compiled code, has taken
	CacheHit bool          // compiled code was read

	Instances int           // that run or are idle
	Idle      int           // of those
	Waiting   int           // attempts that wait for an instance now
	Started   uint64        // instances started
	Start     time.Duration // what all starts have taken together

	Attempts  uint64                  // that were made: an instance was called
	Waits     uint64                  // attempts that had to wait for an instance
	Faults    map[probe.Reason]uint64 // attempts that the plugin, or the lack of it, has spoilt, by the reason plugin.…
	Refused   uint64                  // dials and lookups that are not granted
	Held      int                     // connections that are held now
	Dropped   uint64                  // log records that were too many
	Suspended time.Duration           // for how long it is suspended still; 0 when it is not
	Suspends  uint64                  // how often it was suspended

	Metrics []Metric // that the plugin has set
}

// Metric is a number that a plugin has set.
type Metric struct {
	Name    string
	Counter bool // it only grows; else it is a gauge
	Value   float64
}

// counters are what Stats is made from.
type counters struct {
	compile  atomic.Int64
	cacheHit atomic.Bool
	started  atomic.Uint64
	startNS  atomic.Int64
	attempts atomic.Uint64
	waits    atomic.Uint64
	refused  atomic.Uint64
	dropped  atomic.Uint64

	mu     sync.Mutex
	faults map[probe.Reason]uint64
}

// fault counts an attempt that ended with a reason, if it is one of the host's.
func (c *counters) fault(why probe.Reason) {
	if why == ReasonFailure || !strings.HasPrefix(string(why), "plugin.") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults == nil {
		c.faults = make(map[probe.Reason]uint64)
	}
	c.faults[why]++
}

func (c *counters) faultsNow() map[probe.Reason]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.faults)
}

// Stats returns the plugin's numbers.
func (p *Plugin) Stats() Stats {
	c := &p.counters
	s := Stats{
		Compiled: p.state() == nil, Compile: time.Duration(c.compile.Load()), CacheHit: c.cacheHit.Load(),
		Started: c.started.Load(), Start: time.Duration(c.startNS.Load()),
		Attempts: c.attempts.Load(), Waits: c.waits.Load(), Faults: c.faultsNow(),
		Refused: c.refused.Load(), Held: int(p.held.Load()), Dropped: c.dropped.Load(), Metrics: p.gauges.now(),
	}
	s.Idle, s.Instances, s.Waiting = p.pool.Counts()
	s.Suspended, s.Suspends = p.breaker.Remaining(time.Now()), p.breaker.Suspensions()
	return s
}

// hold counts a connection that is to be held, unless there are too many.
func (p *Plugin) hold() bool {
	if p.held.Add(1) > int64(p.limits.Held) {
		p.held.Add(-1)
		return false
	}
	return true
}

// gauges are the metrics of a plugin.
type gauges struct {
	mu    sync.Mutex
	index map[string]int
	all   []Metric
}

func (g *gauges) now() []Metric {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Metric(nil), g.all...)
}

// set sets a gauge or adds to a counter.
func (g *gauges) set(name string, counter bool, v float64, most int) abi.Errno {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, ok := g.index[name]
	switch {
	case !ok && len(g.all) >= most:
		return abi.ENOSPC
	case !ok:
		if g.index == nil {
			g.index = make(map[string]int)
		}
		i = len(g.all)
		g.index[name] = i
		g.all = append(g.all, Metric{Name: name, Counter: counter})
	case g.all[i].Counter != counter:
		return abi.EINVAL
	}
	if counter {
		v += g.all[i].Value
	}
	g.all[i].Value = v
	return abi.OK
}
