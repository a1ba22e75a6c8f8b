package wasmhost

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// Stats are a plugin's numbers at one moment, for metrics. Fields of type uint64 only grow.
type Stats struct {
	Compiled bool          // the plugin is ready to run
	Compile  time.Duration // time to compile, or to load compiled code from the cache
	CacheHit bool          // compiled code was found in the cache

	Instances int           // live instances, running or idle
	Idle      int           // idle instances
	Waiting   int           // attempts that are waiting for an instance
	Started   uint64        // instances that were started
	Start     time.Duration // total time of all starts

	Attempts  uint64                  // attempts that called an instance
	Waits     uint64                  // attempts that had to wait for an instance
	Faults    map[probe.Reason]uint64 // attempts that failed because of the plugin, by reason (plugin.…)
	Refused   uint64                  // dials and lookups that are not granted
	Held      int                     // connections that are held now
	Dropped   uint64                  // log records above a limit
	Suspended time.Duration           // remaining time of the suspension; 0 when not suspended
	Suspends  uint64                  // suspensions

	Metrics []Metric // set by the plugin
}

// Metric is a metric that a plugin has set.
type Metric struct {
	Name    string
	Counter bool // false: a gauge
	Value   float64
}

// counters are the counts of the plugin itself; its sandbox, pool and breaker have others.
type counters struct {
	compile  atomic.Int64
	cacheHit atomic.Bool
	started  atomic.Uint64
	startNS  atomic.Int64
	attempts atomic.Uint64
	waits    atomic.Uint64

	mu     sync.Mutex
	faults map[probe.Reason]uint64
}

// fault counts an attempt by its reason, if that reason means a fault of the plugin.
func (c *counters) fault(reason probe.Reason) {
	if reason == ReasonFailure || !strings.HasPrefix(string(reason), "plugin.") {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults == nil {
		c.faults = make(map[probe.Reason]uint64)
	}
	c.faults[reason]++
}

// Stats returns the plugin's numbers.
func (p *Plugin) Stats() Stats {
	c, box := &p.counters, p.sandbox.Stats()
	c.mu.Lock()
	faults := maps.Clone(c.faults)
	c.mu.Unlock()
	s := Stats{
		Compiled: p.state() == nil, Compile: time.Duration(c.compile.Load()), CacheHit: c.cacheHit.Load(),
		Started: c.started.Load(), Start: time.Duration(c.startNS.Load()),
		Attempts: c.attempts.Load(), Waits: c.waits.Load(), Faults: faults,
		Refused: box.Refused, Held: box.Held, Dropped: box.Dropped,
		Suspended: p.breaker.Remaining(time.Now()), Suspends: p.breaker.Suspensions(),
	}
	s.Idle, s.Instances, s.Waiting = p.pool.Counts()
	for _, m := range box.Metrics {
		s.Metrics = append(s.Metrics, Metric(m))
	}
	return s
}
