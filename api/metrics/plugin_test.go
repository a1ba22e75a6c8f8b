package metrics_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/wasmhost/stats"
)

func TestPluginMetrics(t *testing.T) {
	plugins := func() []stats.Plugin {
		return []stats.Plugin{
			{
				Name: "grpc", Ready: true, Compile: 1500 * time.Millisecond, CacheHit: true,
				Instances: 5, Idle: 3, Memory: 4096, Waiting: 7, Fuel: 5000, Waits: 11, Started: 13, Start: 2 * time.Second,
				Errors: map[probe.Reason]uint64{"plugin.trap": 2, "plugin.grant": 4}, Denied: 4, Held: 6, Dropped: 8,
				Metrics: []stats.Metric{{Name: "lag_seconds", Value: 0.5}, {Name: "frames", Counter: true, Value: 9}},
			},
			{Name: "redis", Suspended: time.Second, Suspensions: 3, ProbeSuspensions: 9},
		}
	}
	want := `
# HELP sonde_plugin_attempts_waiting Number of attempts waiting for an instance of the plugin.
# TYPE sonde_plugin_attempts_waiting gauge
sonde_plugin_attempts_waiting{plugin="grpc"} 7
sonde_plugin_attempts_waiting{plugin="redis"} 0
# HELP sonde_plugin_cache_hit Whether the plugin's code was loaded from the cache (1) or compiled (0).
# TYPE sonde_plugin_cache_hit gauge
sonde_plugin_cache_hit{plugin="grpc"} 1
sonde_plugin_cache_hit{plugin="redis"} 0
# HELP sonde_plugin_compile_duration_seconds Duration in seconds of compiling the plugin, or of loading its code from the cache.
# TYPE sonde_plugin_compile_duration_seconds gauge
sonde_plugin_compile_duration_seconds{plugin="grpc"} 1.5
sonde_plugin_compile_duration_seconds{plugin="redis"} 0
# HELP sonde_plugin_errors_total Total number of attempts that ended in an error of the plugin, by reason.
# TYPE sonde_plugin_errors_total counter
sonde_plugin_errors_total{plugin="grpc",reason="plugin.grant"} 4
sonde_plugin_errors_total{plugin="grpc",reason="plugin.trap"} 2
# HELP sonde_plugin_held_connections Number of connections that the plugin keeps open between attempts.
# TYPE sonde_plugin_held_connections gauge
sonde_plugin_held_connections{plugin="grpc"} 6
sonde_plugin_held_connections{plugin="redis"} 0
# HELP sonde_plugin_instances Number of instances of the plugin by state: making an attempt (busy) or not (idle).
# TYPE sonde_plugin_instances gauge
sonde_plugin_instances{plugin="grpc",state="busy"} 2
sonde_plugin_instances{plugin="grpc",state="idle"} 3
sonde_plugin_instances{plugin="redis",state="busy"} 0
sonde_plugin_instances{plugin="redis",state="idle"} 0
# HELP sonde_plugin_instances_started_total Total number of started instances of the plugin.
# TYPE sonde_plugin_instances_started_total counter
sonde_plugin_instances_started_total{plugin="grpc"} 13
sonde_plugin_instances_started_total{plugin="redis"} 0
# HELP sonde_plugin_log_records_dropped_total Total number of log records of the plugin dropped by the rate limit.
# TYPE sonde_plugin_log_records_dropped_total counter
sonde_plugin_log_records_dropped_total{plugin="grpc"} 8
sonde_plugin_log_records_dropped_total{plugin="redis"} 0
# HELP sonde_plugin_memory_bytes Memory in bytes that instances of the plugin use.
# TYPE sonde_plugin_memory_bytes gauge
sonde_plugin_memory_bytes{plugin="grpc"} 4096
sonde_plugin_memory_bytes{plugin="redis"} 0
# HELP sonde_plugin_probe_suspensions_total Total number of suspensions of single probes of the plugin.
# TYPE sonde_plugin_probe_suspensions_total counter
sonde_plugin_probe_suspensions_total{plugin="grpc"} 0
sonde_plugin_probe_suspensions_total{plugin="redis"} 9
# HELP sonde_plugin_ready Whether the plugin is compiled (1 for yes, 0 for no).
# TYPE sonde_plugin_ready gauge
sonde_plugin_ready{plugin="grpc"} 1
sonde_plugin_ready{plugin="redis"} 0
# HELP sonde_plugin_fuel_total Total units of fuel used by attempts of the plugin; docs/plugins.md describes them.
# TYPE sonde_plugin_fuel_total counter
sonde_plugin_fuel_total{plugin="grpc"} 5000
sonde_plugin_fuel_total{plugin="redis"} 0
# HELP sonde_plugin_denied_total Total number of dials and lookups of the plugin denied by its grant.
# TYPE sonde_plugin_denied_total counter
sonde_plugin_denied_total{plugin="grpc"} 4
sonde_plugin_denied_total{plugin="redis"} 0
# HELP sonde_plugin_instance_start_seconds_total Total time in seconds spent starting instances of the plugin.
# TYPE sonde_plugin_instance_start_seconds_total counter
sonde_plugin_instance_start_seconds_total{plugin="grpc"} 2
sonde_plugin_instance_start_seconds_total{plugin="redis"} 0
# HELP sonde_plugin_suspended Whether the plugin is suspended after too many errors (1 for yes, 0 for no).
# TYPE sonde_plugin_suspended gauge
sonde_plugin_suspended{plugin="grpc"} 0
sonde_plugin_suspended{plugin="redis"} 1
# HELP sonde_plugin_suspensions_total Total number of suspensions of the plugin.
# TYPE sonde_plugin_suspensions_total counter
sonde_plugin_suspensions_total{plugin="grpc"} 0
sonde_plugin_suspensions_total{plugin="redis"} 3
# HELP sonde_plugin_value Gauge set by the plugin, by name.
# TYPE sonde_plugin_value gauge
sonde_plugin_value{name="lag_seconds",plugin="grpc"} 0.5
# HELP sonde_plugin_value_total Counter incremented by the plugin, by name.
# TYPE sonde_plugin_value_total counter
sonde_plugin_value_total{name="frames",plugin="grpc"} 9
# HELP sonde_plugin_attempts_waited_total Total number of attempts that had to wait for an instance of the plugin.
# TYPE sonde_plugin_attempts_waited_total counter
sonde_plugin_attempts_waited_total{plugin="grpc"} 11
sonde_plugin_attempts_waited_total{plugin="redis"} 0
`
	compare(t, metrics.Config{Engine: shop(), Plugins: plugins}, want,
		"sonde_plugin_attempts_waiting", "sonde_plugin_cache_hit", "sonde_plugin_compile_duration_seconds", "sonde_plugin_errors_total",
		"sonde_plugin_held_connections", "sonde_plugin_instances", "sonde_plugin_instances_started_total",
		"sonde_plugin_log_records_dropped_total", "sonde_plugin_ready", "sonde_plugin_fuel_total", "sonde_plugin_denied_total", "sonde_plugin_instance_start_seconds_total",
		"sonde_plugin_memory_bytes", "sonde_plugin_probe_suspensions_total", "sonde_plugin_suspended", "sonde_plugin_suspensions_total", "sonde_plugin_value", "sonde_plugin_value_total", "sonde_plugin_attempts_waited_total")
}
