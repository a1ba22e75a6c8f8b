package daemon

import (
	"maps"
	"slices"

	"github.com/sonde-probe/sonde/adapter/prom"
	"github.com/sonde-probe/sonde/wasmhost"
)

// pluginStats returns the statistics of the plugins in use, sorted by name.
func (d *daemon) pluginStats() []prom.Plugin {
	var all []prom.Plugin
	stats := d.plugins.Load().Stats()
	for _, name := range slices.Sorted(maps.Keys(stats)) {
		all = append(all, promPlugin(name, stats[name]))
	}
	return all
}

func promPlugin(name string, s wasmhost.Stats) prom.Plugin {
	p := prom.Plugin{
		Name: name, Ready: s.Compiled, Compile: s.Compile, CacheHit: s.CacheHit, Suspended: s.Suspended > 0, Suspends: s.Suspends,
		Instances: s.Instances, Idle: s.Idle, Waiting: s.Waiting, Waits: s.Waits, Started: s.Started, Start: s.Start,
		Errors: s.Faults, Denied: s.Refused, Held: s.Held, Dropped: s.Dropped,
	}
	for _, m := range s.Metrics {
		p.Values = append(p.Values, prom.PluginValue(m))
	}
	return p
}
