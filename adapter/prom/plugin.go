package prom

import "github.com/sonde-probe/sonde/wasmhost/stats"

// Metrics of each plugin.
var (
	pluginReadyDesc     = describe("sonde_plugin_ready", "Whether the plugin is compiled (1 for yes, 0 for no).", pluginLabels)
	pluginCompileDesc   = describe("sonde_plugin_compile_duration_seconds", "Duration in seconds of compiling the plugin, or of loading its code from the cache.", pluginLabels)
	pluginCacheHitDesc  = describe("sonde_plugin_cache_hit", "Whether the plugin's code was loaded from the cache (1) or compiled (0).", pluginLabels)
	pluginSuspendedDesc = describe("sonde_plugin_suspended", "Whether the plugin is suspended after too many errors (1 for yes, 0 for no).", pluginLabels)
	pluginSuspendsDesc  = describe("sonde_plugin_suspensions_total", "Total number of suspensions of the plugin.", pluginLabels)

	pluginInstancesDesc = describe("sonde_plugin_instances", "Number of instances of the plugin by state: making an attempt (busy) or not (idle).", []string{"plugin", "state"})
	pluginWaitingDesc   = describe("sonde_plugin_attempts_waiting", "Number of attempts waiting for an instance of the plugin.", pluginLabels)
	pluginWaitsDesc     = describe("sonde_plugin_attempts_waited_total", "Total number of attempts that had to wait for an instance of the plugin.", pluginLabels)
	pluginStartedDesc   = describe("sonde_plugin_instances_started_total", "Total number of started instances of the plugin.", pluginLabels)
	pluginStartDesc     = describe("sonde_plugin_instance_start_seconds_total", "Total time in seconds spent starting instances of the plugin.", pluginLabels)

	pluginErrorsDesc  = describe("sonde_plugin_errors_total", "Total number of attempts that ended in an error of the plugin, by reason.", []string{"plugin", "reason"})
	pluginDeniedDesc  = describe("sonde_plugin_denied_total", "Total number of dials and lookups of the plugin denied by its grant.", pluginLabels)
	pluginHeldDesc    = describe("sonde_plugin_held_connections", "Number of connections that the plugin keeps open between attempts.", pluginLabels)
	pluginDroppedDesc = describe("sonde_plugin_log_records_dropped_total", "Total number of log records of the plugin dropped by the rate limit.", pluginLabels)

	pluginGaugeDesc = describe("sonde_plugin_value", "Gauge set by the plugin, by name.", []string{"plugin", "name"})
	pluginCountDesc = describe("sonde_plugin_value_total", "Counter incremented by the plugin, by name.", []string{"plugin", "name"})
)

// plugin sends the metrics of a plugin.
func (s scrape) plugin(p stats.Plugin) {
	s.gauge(pluginReadyDesc, number(p.Ready), p.Name)
	s.gauge(pluginCompileDesc, p.Compile.Seconds(), p.Name)
	s.gauge(pluginCacheHitDesc, number(p.CacheHit), p.Name)
	s.gauge(pluginSuspendedDesc, number(p.Suspended > 0), p.Name)
	s.counter(pluginSuspendsDesc, float64(p.Suspensions), p.Name)
	s.gauge(pluginInstancesDesc, float64(p.Instances-p.Idle), p.Name, "busy")
	s.gauge(pluginInstancesDesc, float64(p.Idle), p.Name, "idle")
	s.gauge(pluginWaitingDesc, float64(p.Waiting), p.Name)
	s.counter(pluginWaitsDesc, float64(p.Waits), p.Name)
	s.counter(pluginStartedDesc, float64(p.Started), p.Name)
	s.counter(pluginStartDesc, p.Start.Seconds(), p.Name)
	for reason, n := range p.Errors {
		s.counter(pluginErrorsDesc, float64(n), p.Name, string(reason))
	}
	s.counter(pluginDeniedDesc, float64(p.Denied), p.Name)
	s.gauge(pluginHeldDesc, float64(p.Held), p.Name)
	s.counter(pluginDroppedDesc, float64(p.Dropped), p.Name)
	for _, v := range p.Metrics {
		if v.Counter {
			s.counter(pluginCountDesc, v.Value, p.Name, v.Name)
		} else {
			s.gauge(pluginGaugeDesc, v.Value, p.Name, v.Name)
		}
	}
}
