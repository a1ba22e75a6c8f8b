package wasmhost

import (
	"math"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

func metric(c *call, a args) int64 {
	name, errno := c.text(a, 1, abi.MaxMetricName)
	if errno != abi.OK {
		return i32(0, errno)
	}
	kind, v := a.u32(0), api.DecodeF64(a[3])
	counter := kind == abi.MetricCounter
	switch {
	case kind != abi.MetricGauge && !counter:
		return i32(0, abi.ENOTSUP)
	case !isMetricName(name):
		return i32(0, c.failf(abi.EINVAL, "%q is not a name of a metric", name))
	case counter && !(v >= 0 && v <= math.MaxFloat64):
		return i32(0, c.failf(abi.EINVAL, "the counter %s can only grow", name))
	}
	return i32(0, c.plugin.gauges.set(name, counter, v, c.plugin.limits.Metrics))
}

func isMetricName(s string) bool {
	return s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
