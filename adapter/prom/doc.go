// Package prom shows an engine to Prometheus.
//
// Nothing is counted here: each scrape reads the engine's own counters and
// states, so a metric costs nothing between scrapes, and the series of a target
// end with the target.
//
// The labels are kept few on purpose. A series is made for each probe and each
// target, and for each kind, handler name and outcome that was seen. Reasons of results,
// details and instances are not labels, since a stranger decides how many of
// them there are.
//
//	sonde_attempts_total{kind,handler,outcome}               counter
//	sonde_attempt_duration_seconds{kind,handler,outcome}     histogram
//	sonde_attempts_in_flight, sonde_attempts_queued          gauges
//	sonde_turns_skipped_total{reason="overrun"|"late"|"shed"}       counter
//	sonde_loop_busy_seconds_total                            counter
//	sonde_lateness_seconds                                   histogram
//	sonde_handler_panics_total, sonde_answers_dropped_total  counters
//	sonde_probes                                             gauge
//	sonde_build_info{version,goversion}                      gauge, always 1
//	sonde_probe_passing{target,kind,probe}                   gauge, 1 or 0
//	sonde_probe_undecided{target,kind,probe}                 gauge, 1 or 0
//	sonde_probe_errors{target,kind,probe}                    gauge
//	sonde_probe_changes_total{target,kind,probe}             counter
//	sonde_target_started{target}, and _ready and _live       gauges, 1 or 0
//	sonde_target_restarts_total{target}                      counter
//
// Of each plugin, with the label plugin:
//
//	sonde_plugin_ready, _suspended, _cache_hit               gauges, 1 or 0
//	sonde_plugin_compile_seconds                             gauge
//	sonde_plugin_instances{state="busy"|"idle"}              gauge
//	sonde_plugin_attempts_waiting, _held_connections         gauges
//	sonde_plugin_waits_total, _instances_started_total       counters
//	sonde_plugin_start_seconds_total, _suspensions_total     counters
//	sonde_plugin_faults_total{reason}                        counter
//	sonde_plugin_refused_total, _log_dropped_total           counters
//	sonde_plugin_value{name}, _value_total{name}             what the plugin itself has set
//
// The label probe is the probe's name; it is empty for a kind's only probe.
//
// A probe that has not decided yet is not passing: sonde_probe_passing is 0 for
// it, and sonde_probe_undecided is 1. So an alert on what does not pass misses
// nothing, and one on what fails leaves the undecided out:
//
//	sonde_probe_passing == 0 unless sonde_probe_undecided == 1
package prom
