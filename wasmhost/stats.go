package wasmhost

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// startCounters counts the compilation of a module and the starts of its instances.
type startCounters struct {
	compile  atomic.Int64
	cacheHit atomic.Bool
	started  atomic.Uint64
	startNS  atomic.Int64
}

// counters has the plugin's own counters; tenant, pool and breaker have further ones.
type counters struct {
	attempts atomic.Uint64
	fuel     atomic.Uint64
	waits    atomic.Uint64

	faults sync.Map // maps probe.Reason to *atomic.Uint64
}

// fault counts an attempt under its reason, if that is a reason of the plugin other than
// ReasonFailure.
func (c *counters) fault(reason probe.Reason) {
	if reason == ReasonFailure || !strings.HasPrefix(string(reason), "plugin.") {
		return
	}
	n, _ := c.faults.LoadOrStore(reason, new(atomic.Uint64))
	n.(*atomic.Uint64).Add(1)
}

// Stats returns the plugin's current metrics.
func (p *Plugin) Stats() stats.Plugin {
	c := &p.counters
	faults := make(map[probe.Reason]uint64)
	for reason, n := range c.faults.Range {
		faults[reason.(probe.Reason)] = n.(*atomic.Uint64).Load()
	}
	s := stats.Plugin{
		Name: p.name, Ready: p.state() == nil, IsShare: p.isShare,
		Attempts: c.attempts.Load(), Fuel: c.fuel.Load(), Waits: c.waits.Load(), Errors: faults,
	}
	s.Suspended, s.Suspensions, s.ProbeSuspensions = p.breaker.suspensions(time.Now())
	p.tenant.ReadStats(&s)
	if p.isShare {
		return s
	}
	s.Compile, s.CacheHit = time.Duration(p.starts.compile.Load()), p.starts.cacheHit.Load()
	s.Started, s.Start = p.starts.started.Load(), time.Duration(p.starts.startNS.Load())
	s.Idle, s.Instances, s.Waiting = p.pool.counts()
	s.Memory = p.sandbox.Memory()
	return s
}
