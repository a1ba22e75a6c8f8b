package metrics

import "github.com/sonde-probe/sonde/wasmhost/stats"

// Metrics of each plugin.
var pluginMetrics = []metric[*stats.Plugin]{
	gauge("sonde_plugin_ready", "Whether the plugin is compiled (1 for yes, 0 for no).", func(p *stats.Plugin) float64 { return number(p.Ready) }, "plugin"),
	gauge("sonde_plugin_suspended", "Whether the plugin is suspended after too many errors (1 for yes, 0 for no).", func(p *stats.Plugin) float64 { return number(p.Suspended > 0) }, "plugin"),
	counter("sonde_plugin_suspensions_total", "Total number of suspensions of the plugin.", func(p *stats.Plugin) float64 { return float64(p.Suspensions) }, "plugin"),
	counter("sonde_plugin_probe_suspensions_total", "Total number of suspensions of single probes of the plugin.", func(p *stats.Plugin) float64 { return float64(p.ProbeSuspensions) }, "plugin"),
	counter("sonde_plugin_attempts_waited_total", "Total number of attempts that had to wait for an instance of the plugin.", func(p *stats.Plugin) float64 { return float64(p.Waits) }, "plugin"),
	counter("sonde_plugin_fuel_total", "Total units of fuel used by attempts of the plugin; docs/plugins.md describes them.", func(p *stats.Plugin) float64 { return float64(p.Fuel) }, "plugin"),
	counter("sonde_plugin_denied_total", "Total number of dials and lookups of the plugin denied by its grant.", func(p *stats.Plugin) float64 { return float64(p.Denied) }, "plugin"),
	gauge("sonde_plugin_held_connections", "Number of connections that the plugin keeps open between attempts.", func(p *stats.Plugin) float64 { return float64(p.Held) }, "plugin"),
	counter("sonde_plugin_log_records_dropped_total", "Total number of log records of the plugin dropped by the rate limit.", func(p *stats.Plugin) float64 { return float64(p.Dropped) }, "plugin"),
}

// Metrics of each plugin that does not share the instances of another one.
var instanceMetrics = []metric[*stats.Plugin]{
	gauge("sonde_plugin_compile_duration_seconds", "Duration in seconds of compiling the plugin, or of loading its code from the cache.", func(p *stats.Plugin) float64 { return p.Compile.Seconds() }, "plugin"),
	gauge("sonde_plugin_cache_hit", "Whether the plugin's code was loaded from the cache (1) or compiled (0).", func(p *stats.Plugin) float64 { return number(p.CacheHit) }, "plugin"),
	gauge("sonde_plugin_memory_bytes", "Memory in bytes that instances of the plugin use.", func(p *stats.Plugin) float64 { return float64(p.Memory) }, "plugin"),
	gauge("sonde_plugin_attempts_waiting", "Number of attempts waiting for an instance of the plugin.", func(p *stats.Plugin) float64 { return float64(p.Waiting) }, "plugin"),
	counter("sonde_plugin_instances_started_total", "Total number of started instances of the plugin.", func(p *stats.Plugin) float64 { return float64(p.Started) }, "plugin"),
	counter("sonde_plugin_instance_start_seconds_total", "Total time in seconds spent starting instances of the plugin.", func(p *stats.Plugin) float64 { return p.Start.Seconds() }, "plugin"),
}

// Metrics of each plugin that have further labels.
var (
	pluginInstancesDesc = describe("sonde_plugin_instances", "Number of instances of the plugin by state: making an attempt (busy) or not (idle).", "plugin", "state")
	pluginErrorsDesc    = describe("sonde_plugin_errors_total", "Total number of attempts that ended in an error of the plugin, by reason.", "plugin", "reason")
	pluginGaugeDesc     = describe("sonde_plugin_value", "Gauge set by the plugin, by name.", "plugin", "name")
	pluginCountDesc     = describe("sonde_plugin_value_total", "Counter incremented by the plugin, by name.", "plugin", "name")
)

// plugin sends the metrics of a plugin.
func (s scrape) plugin(p stats.Plugin) {
	send(s, pluginMetrics, &p, p.Name)
	if !p.IsShare {
		send(s, instanceMetrics, &p, p.Name)
		s.gauge(pluginInstancesDesc, float64(p.Instances-p.Idle), p.Name, "busy")
		s.gauge(pluginInstancesDesc, float64(p.Idle), p.Name, "idle")
	}
	for reason, n := range p.Errors {
		s.counter(pluginErrorsDesc, float64(n), p.Name, string(reason))
	}
	for _, v := range p.Metrics {
		if v.Counter {
			s.counter(pluginCountDesc, v.Value, p.Name, v.Name)
		} else {
			s.gauge(pluginGaugeDesc, v.Value, p.Name, v.Name)
		}
	}
}
