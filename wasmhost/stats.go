package wasmhost

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
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
	c, box := &p.counters, p.sandbox.Stats()
	s := Stats{
		Compiled: p.state() == nil, Compile: time.Duration(c.compile.Load()), CacheHit: c.cacheHit.Load(),
		Started: c.started.Load(), Start: time.Duration(c.startNS.Load()),
		Attempts: c.attempts.Load(), Waits: c.waits.Load(), Faults: c.faultsNow(),
		Refused: box.Refused, Held: box.Held, Dropped: box.Dropped,
		Suspended: p.breaker.Remaining(time.Now()), Suspends: p.breaker.Suspensions(),
	}
	s.Idle, s.Instances, s.Waiting = p.pool.Counts()
	for _, m := range box.Metrics {
		s.Metrics = append(s.Metrics, Metric(m))
	}
	return s
}
