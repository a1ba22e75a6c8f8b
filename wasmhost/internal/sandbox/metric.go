package sandbox

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

// setMetric sets a metric of the plugin, or a number about the attempt.
func (c *call) setMetric(a args) int64 {
	kind, v := a.u32(0), api.DecodeF64(a[3])
	if kind == abi.MetricAttempt && !probe.IsTraced(c.life.ctx) {
		return i32(0, abi.ENOTCAPABLE)
	}
	name, errno := c.memory.text(a, 1, abi.MaxMetricName)
	if errno != abi.OK {
		return i32(0, errno)
	}
	counter := kind == abi.MetricCounter
	switch {
	case kind != abi.MetricGauge && kind != abi.MetricAttempt && !counter:
		return i32(0, abi.ENOTSUP)
	case !abi.IsName(name):
		return i32(0, c.failf(abi.EINVAL, "metric name %q is invalid: use letters a-z, digits and underscores", name))
	case counter && !(v >= 0 && v <= math.MaxFloat64):
		return i32(0, c.failf(abi.EINVAL, "counter %s cannot be decreased", name))
	}
	if kind == abi.MetricAttempt {
		return i32(0, c.measured(name, v))
	}
	return i32(0, c.tenant.metrics.set(name, counter, v, c.sandbox.config.Limits.Metrics))
}

// measured records a number about the attempt in its trace. ENOSPC means that the trace already has
// as many names as Limits.Metrics allows.
func (c *call) measured(name string, v float64) (errno abi.Errno) {
	probe.RecordTrace(c.life.ctx, func(t *probe.Trace) {
		if _, ok := t.Measured[name]; !ok && len(t.Measured) >= c.sandbox.config.Limits.Metrics {
			errno = abi.ENOSPC
			return
		}
		all := maps.Clone(t.Measured)
		if all == nil {
			all = make(map[string]float64)
		}
		all[name] = v
		t.Measured = all
	})
	return errno
}

// metrics has the metrics that the attempts of a tenant have set.
type metrics struct {
	mu     sync.Mutex // guards byName
	byName map[string]stats.Metric
}

// all returns the metrics, sorted by name.
func (m *metrics) all() (all []stats.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.byName)) {
		all = append(all, m.byName[name])
	}
	return all
}

// set sets a gauge or adds to a counter. ENOSPC means that there are already max names.
func (m *metrics) set(name string, counter bool, v float64, max int) abi.Errno {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, ok := m.byName[name]
	switch {
	case !ok && len(m.byName) >= max:
		return abi.ENOSPC
	case ok && before.Counter != counter:
		return abi.EINVAL
	case m.byName == nil:
		m.byName = make(map[string]stats.Metric)
	}
	if counter {
		v += before.Value
	}
	m.byName[name] = stats.Metric{Name: name, Counter: counter, Value: v}
	return abi.OK
}
