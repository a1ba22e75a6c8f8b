// Package metrics exports an engine's metrics to Prometheus.
//
// Each scrape reads the engine's counters and states: metrics cost nothing between scrapes, and the series of a target
// disappear when it is removed.
//
// There is a series for each probe and each target, and for each kind, handler and outcome that has occurred. Reasons,
// details and instance IDs are not labels, because their number is not bounded. While there are more probes than
// Config.MaxProbes, the series of each probe and target are omitted, and sonde_series_omitted is 1.
//
//	sonde_attempts_total{kind,handler,outcome}               counter
//	sonde_attempt_duration_seconds{kind,handler,outcome}     histogram
//	sonde_attempts_in_flight, sonde_attempts_queued          gauges
//	sonde_attempts_skipped_total{reason="overrun"|"late"|"shed"} counter
//	sonde_scheduler_busy_seconds_total                       counter
//	sonde_attempt_lateness_seconds                           histogram
//	sonde_handler_panics_total, sonde_results_dropped_total  counters
//	sonde_log_records_dropped_total                          counter
//	sonde_targets_ejected, sonde_ejections_total             gauge and counter
//	sonde_flaps_total, sonde_targets_damped, sonde_dampings_total
//	                                                         of targets with a damping block; counters, and a gauge
//	sonde_health_score                                       gauge, 0 is healthy, 8 the worst
//	sonde_isolated                                           gauge, 1 while no target responds
//	sonde_names_isolated                                     gauge, 1 while no name server responds
//	sonde_name_servers_silent                                gauge, number of name servers that do not respond
//	sonde_stalls_total, sonde_stalled_seconds_total          counters
//	sonde_probes, sonde_verdicts{kind,verdict}               gauges
//	sonde_targets, sonde_targets_started, _ready and _live   gauges
//	sonde_series_omitted                                     gauge, 1 or 0
//	sonde_state_last_write_timestamp_seconds                 gauge, with a state file only
//	sonde_state_size_bytes, sonde_state_write_errors_total   gauge and counter, with a state file only
//	sonde_config_last_reload_successful                      gauge, 1 or 0
//	sonde_config_last_reload_success_timestamp_seconds       gauge
//	sonde_build_info{version,goversion}                      gauge, always 1
//	sonde_probe_passing{target,kind,name}                    gauge, 1 or 0
//	sonde_probe_undecided{target,kind,name}                 gauge, 1 or 0
//	sonde_probe_consecutive_errors{target,kind,name}         gauge
//	sonde_probe_changes_total{target,kind,name}              counter
//	sonde_target_started{target}, and _ready and _live       gauges, 1 or 0
//	sonde_target_restarts_total{target}                      counter
//	sonde_group_ready{group}                                 gauge, 1 or 0; omitted until it is known
//	sonde_group_members{group,state="ready"|"down"|"undecided"} gauge
//	sonde_group_restarts_withheld{group}                     gauge, only of groups with hold_restarts
//	sonde_gateway_outputs_total{gateway,output}              counter
//	sonde_gateway_errors_total, sonde_gateway_refused_total  counters, with the same labels
//	sonde_gateway_failing, sonde_gateway_failing_sources     gauges, with the same labels
//	sonde_gateway_last_output_timestamp_seconds              gauge, with the same labels
//	sonde_maintenance_active{maintenance}, and _targets      gauges
//	sonde_cluster_members, sonde_cluster_shards_owned        gauges, with a cluster only
//	sonde_cluster_lease_seconds, sonde_cluster_allowed       gauges, with a cluster only
//	sonde_cluster_doubtful, sonde_cluster_drained            gauges, with a cluster only
//	sonde_quorum_polls, sonde_quorum_gray                    gauges, with a cluster only
//	sonde_cluster_revision, sonde_cluster_revision_current   gauges, only with a pushed configuration
//	sonde_target_labels{target,…}                            gauge, always 1, with Config.Labels only
//
// Only sonde_target_labels has the labels of targets, limited to Config.Labels:
//
//	sonde_target_ready * on (target) group_left (team) sonde_target_labels
//
// For each plugin, with the label plugin:
//
//	sonde_plugin_ready, _suspended, _cache_hit               gauges, 1 or 0
//	sonde_plugin_compile_duration_seconds                    gauge
//	sonde_plugin_instances{state="busy"|"idle"}              gauge
//	sonde_plugin_attempts_waiting, _held_connections         gauges
//	sonde_plugin_attempts_waited_total                       counter
//	sonde_plugin_instances_started_total                     counter
//	sonde_plugin_instance_start_seconds_total                counter
//	sonde_plugin_memory_bytes                                gauge
//	sonde_plugin_suspensions_total                           counter
//	sonde_plugin_probe_suspensions_total                     counter
//	sonde_plugin_errors_total{reason}                        counter
//	sonde_plugin_fuel_total                                  counter
//	sonde_plugin_denied_total                                counter
//	sonde_plugin_log_records_dropped_total                   counter
//	sonde_plugin_value{name}, _value_total{name}             gauges and counters of the plugin itself
//
// The label name is the probe's name; it is empty for the only probe of a kind.
//
// For a probe without a verdict sonde_probe_passing is 0 and sonde_probe_undecided is 1. An alert on failing probes only
// is
//
//	sonde_probe_passing == 0 unless sonde_probe_undecided == 1
package metrics
