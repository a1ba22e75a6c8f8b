package prom_test

import (
	"testing"
	"time"

	"github.com/sonde-probe/sonde/adapter/prom"
)

func TestEachPluginShowsHowItIsAndWhatItHasSet(t *testing.T) {
	plugins := func() []prom.Plugin {
		return []prom.Plugin{
			{
				Name: "grpc", Ready: true, Compile: 1500 * time.Millisecond, CacheHit: true,
				Instances: 5, Idle: 3, Waiting: 7, Waits: 11, Started: 13, Start: 2 * time.Second,
				Faults: map[string]uint64{"plugin.trap": 2, "plugin.grant": 4}, Refused: 4, Held: 6, Dropped: 8,
				Values: []prom.PluginValue{{Name: "lag_seconds", Value: 0.5}, {Name: "frames", Counter: true, Value: 9}},
			},
			{Name: "redis", Suspended: true, Suspends: 3},
		}
	}
	want := `
# HELP sonde_plugin_attempts_waiting Attempts that wait for an instance of the plugin.
# TYPE sonde_plugin_attempts_waiting gauge
sonde_plugin_attempts_waiting{plugin="grpc"} 7
sonde_plugin_attempts_waiting{plugin="redis"} 0
# HELP sonde_plugin_cache_hit 1 if the plugin's compiled code was read, 0 if it was compiled.
# TYPE sonde_plugin_cache_hit gauge
sonde_plugin_cache_hit{plugin="grpc"} 1
sonde_plugin_cache_hit{plugin="redis"} 0
# HELP sonde_plugin_compile_seconds How long compiling the plugin, or reading its compiled code, has taken.
# TYPE sonde_plugin_compile_seconds gauge
sonde_plugin_compile_seconds{plugin="grpc"} 1.5
sonde_plugin_compile_seconds{plugin="redis"} 0
# HELP sonde_plugin_faults_total Attempts that the plugin has not ended well, by reason.
# TYPE sonde_plugin_faults_total counter
sonde_plugin_faults_total{plugin="grpc",reason="plugin.grant"} 4
sonde_plugin_faults_total{plugin="grpc",reason="plugin.trap"} 2
# HELP sonde_plugin_held_connections Connections that the plugin keeps between attempts.
# TYPE sonde_plugin_held_connections gauge
sonde_plugin_held_connections{plugin="grpc"} 6
sonde_plugin_held_connections{plugin="redis"} 0
# HELP sonde_plugin_instances Instances of the plugin that make an attempt (busy) or wait for one (idle).
# TYPE sonde_plugin_instances gauge
sonde_plugin_instances{plugin="grpc",state="busy"} 2
sonde_plugin_instances{plugin="grpc",state="idle"} 3
sonde_plugin_instances{plugin="redis",state="busy"} 0
sonde_plugin_instances{plugin="redis",state="idle"} 0
# HELP sonde_plugin_instances_started_total Instances of the plugin that were started.
# TYPE sonde_plugin_instances_started_total counter
sonde_plugin_instances_started_total{plugin="grpc"} 13
sonde_plugin_instances_started_total{plugin="redis"} 0
# HELP sonde_plugin_log_dropped_total Log records of the plugin that were too many.
# TYPE sonde_plugin_log_dropped_total counter
sonde_plugin_log_dropped_total{plugin="grpc"} 8
sonde_plugin_log_dropped_total{plugin="redis"} 0
# HELP sonde_plugin_ready 1 if the plugin is compiled, else 0.
# TYPE sonde_plugin_ready gauge
sonde_plugin_ready{plugin="grpc"} 1
sonde_plugin_ready{plugin="redis"} 0
# HELP sonde_plugin_refused_total Dials and lookups that the plugin is not granted.
# TYPE sonde_plugin_refused_total counter
sonde_plugin_refused_total{plugin="grpc"} 4
sonde_plugin_refused_total{plugin="redis"} 0
# HELP sonde_plugin_start_seconds_total How long all starts of instances have taken together.
# TYPE sonde_plugin_start_seconds_total counter
sonde_plugin_start_seconds_total{plugin="grpc"} 2
sonde_plugin_start_seconds_total{plugin="redis"} 0
# HELP sonde_plugin_suspended 1 while the plugin is suspended, since it traps too often, else 0.
# TYPE sonde_plugin_suspended gauge
sonde_plugin_suspended{plugin="grpc"} 0
sonde_plugin_suspended{plugin="redis"} 1
# HELP sonde_plugin_suspensions_total How often the plugin was suspended.
# TYPE sonde_plugin_suspensions_total counter
sonde_plugin_suspensions_total{plugin="grpc"} 0
sonde_plugin_suspensions_total{plugin="redis"} 3
# HELP sonde_plugin_value A gauge that the plugin itself has set.
# TYPE sonde_plugin_value gauge
sonde_plugin_value{name="lag_seconds",plugin="grpc"} 0.5
# HELP sonde_plugin_value_total A counter that the plugin itself has added to.
# TYPE sonde_plugin_value_total counter
sonde_plugin_value_total{name="frames",plugin="grpc"} 9
# HELP sonde_plugin_waits_total Attempts that had to wait for an instance of the plugin.
# TYPE sonde_plugin_waits_total counter
sonde_plugin_waits_total{plugin="grpc"} 11
sonde_plugin_waits_total{plugin="redis"} 0
`
	compare(t, prom.Config{Engine: shop(), Plugins: plugins}, want,
		"sonde_plugin_attempts_waiting", "sonde_plugin_cache_hit", "sonde_plugin_compile_seconds", "sonde_plugin_faults_total",
		"sonde_plugin_held_connections", "sonde_plugin_instances", "sonde_plugin_instances_started_total",
		"sonde_plugin_log_dropped_total", "sonde_plugin_ready", "sonde_plugin_refused_total", "sonde_plugin_start_seconds_total",
		"sonde_plugin_suspended", "sonde_plugin_suspensions_total", "sonde_plugin_value", "sonde_plugin_value_total", "sonde_plugin_waits_total")
}
