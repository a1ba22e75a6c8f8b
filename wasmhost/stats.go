package wasmhost

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// counters are the counts of the plugin itself; its sandbox, pool and breaker have others.
type counters struct {
	compile  atomic.Int64
	cacheHit atomic.Bool
	started  atomic.Uint64
	startNS  atomic.Int64
	attempts atomic.Uint64
	fuel     atomic.Uint64
	waits    atomic.Uint64

	faults sync.Map // of *atomic.Uint64, by probe.Reason
}

// fault counts an attempt by its reason, if that reason means a fault of the plugin.
func (c *counters) fault(reason probe.Reason) {
	if reason == ReasonFailure || !strings.HasPrefix(string(reason), "plugin.") {
		return
	}
	n, _ := c.faults.LoadOrStore(reason, new(atomic.Uint64))
	n.(*atomic.Uint64).Add(1)
}

// Stats returns the plugin's numbers.
func (p *Plugin) Stats() stats.Plugin {
	c := &p.counters
	faults := make(map[probe.Reason]uint64)
	for reason, n := range c.faults.Range {
		faults[reason.(probe.Reason)] = n.(*atomic.Uint64).Load()
	}
	s := stats.Plugin{
		Name: p.name, Ready: p.state() == nil, Compile: time.Duration(c.compile.Load()), CacheHit: c.cacheHit.Load(),
		Started: c.started.Load(), Start: time.Duration(c.startNS.Load()),
		Attempts: c.attempts.Load(), Fuel: c.fuel.Load(), Waits: c.waits.Load(), Errors: faults,
	}
	s.Suspended, s.Suspensions, s.ProbeSuspensions = p.breaker.Suspensions(time.Now())
	s.Idle, s.Instances, s.Waiting = p.pool.Counts()
	p.sandbox.ReadStats(&s)
	return s
}
