package metrics

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// descriptions has the descriptions of all metrics except the kubelet's. describe adds to it.
var descriptions []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descriptions = append(descriptions, d)
	return d
}

// metric is a gauge or a counter whose value is read from a T.
type metric[T any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(T) float64
}

func gauge[T any](name, help string, value func(T) float64, labels ...string) metric[T] {
	return metric[T]{describe(name, help, labels...), prometheus.GaugeValue, value}
}

func counter[T any](name, help string, value func(T) float64, labels ...string) metric[T] {
	return metric[T]{describe(name, help, labels...), prometheus.CounterValue, value}
}

// unixTime returns a time in seconds since 1970, or 0 for the zero time.
func unixTime(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// Metrics of the engine.
var engineMetrics = []metric[engine.Stats]{
	gauge("sonde_probes", "Number of probes.", func(s engine.Stats) float64 { return float64(s.Probes) }),
	gauge("sonde_attempts_in_flight", "Number of attempts in progress.", func(s engine.Stats) float64 { return float64(s.InFlight) }),
	gauge("sonde_attempts_queued", "Number of attempts that are due and wait for a free slot.", func(s engine.Stats) float64 { return float64(s.Queued) }),
	counter("sonde_scheduler_busy_seconds_total", "Total time in seconds that the scheduler was not idle.", func(s engine.Stats) float64 { return s.Busy.Seconds() }),
	counter("sonde_handler_panics_total", "Total number of panics in handlers.", func(s engine.Stats) float64 { return float64(s.Panics) }),
	counter("sonde_results_dropped_total", "Total number of results dropped because the instance or the probe was replaced during the attempt.", func(s engine.Stats) float64 { return float64(s.Dropped) }),
	gauge("sonde_targets_ejected", "Number of targets that gateways are to send no requests because those that they have sent failed.", func(s engine.Stats) float64 { return float64(s.Ejected) }),
	counter("sonde_ejections_total", "Total number of times that a target was ejected because requests of gateways failed.", func(s engine.Stats) float64 { return float64(s.Ejections) }),
	counter("sonde_flaps_total", "Total number of times that a target with a damping block was ready and then was not.", func(s engine.Stats) float64 { return float64(s.Flaps) }),
	gauge("sonde_targets_damped", "Number of targets that are damped because they flap.", func(s engine.Stats) float64 { return float64(s.Damped) }),
	counter("sonde_dampings_total", "Total number of times that a target was damped because it flapped.", func(s engine.Stats) float64 { return float64(s.Dampings) }),
	gauge("sonde_health_score", "Health score of the engine itself: 0 is healthy, from 2 on it restarts nothing, 8 is the worst.", func(s engine.Stats) float64 { return float64(s.Health.Score) }),
	gauge("sonde_isolated", "1 while no target answers, otherwise 0.", func(s engine.Stats) float64 { return number(s.Health.Isolated) }),
	gauge("sonde_names_isolated", "1 while no name server answers, or no target with a name, otherwise 0.", func(s engine.Stats) float64 { return number(s.Health.NamesIsolated) }),
	counter("sonde_stalls_total", "Total number of stalls of the engine: its process was stopped or short of processor time.", func(s engine.Stats) float64 { return float64(s.Health.Stalls) }),
	counter("sonde_stalled_seconds_total", "Total time in seconds that the engine was stalled.", func(s engine.Stats) float64 { return s.Health.Stalled.Seconds() }),
}

// Metrics of the engine that have labels or buckets, or that are not in engine.Stats.
var (
	attemptsDesc      = describe("sonde_attempts_total", "Total number of finished attempts by probe kind, handler and outcome.", "kind", "handler", "outcome")
	durationDesc      = describe("sonde_attempt_duration_seconds", "Duration of attempts in seconds, including retries.", "kind", "handler", "outcome")
	latenessDesc      = describe("sonde_attempt_lateness_seconds", "Time in seconds from the due time of an attempt to its start.")
	skippedDesc       = describe("sonde_attempts_skipped_total", "Total number of skipped attempts by reason: the previous attempt was in progress (overrun), the engine was late by a period or more (late), or it was overloaded and the probe was passing (shed).", "reason")
	statesDesc        = describe("sonde_target_states", "Number of targets by state.", "state")
	verdictsDesc      = describe("sonde_verdicts", "Number of probes by kind and verdict.", "kind", "verdict")
	silentServersDesc = describe("sonde_name_servers_silent", "Number of name servers of the engine's machine that have not answered the last 3 queries or more.")
	logDroppedDesc    = describe("sonde_log_records_dropped_total", "Total number of log records dropped because the log was read too slowly or could not be written.")
	droppedLinesDesc  = describe("sonde_process_log_lines_dropped_total", "Total number of lines of the output of the target's processes that were dropped because they came too fast or could not be written.", "target")
	omittedDesc       = describe("sonde_series_omitted", "Whether the series of each probe and target are left out because there are more probes than metrics_max_probes (1 for yes, 0 for no).")
	groupReadyDesc    = describe("sonde_group_ready", "Whether the group was ready when that was last known (1 for yes, 0 for no).", "group")
	groupMembersDesc  = describe("sonde_group_members", "Number of members of the group by state, without those of the weight 0.", "group", "state")
	groupRotationDesc = describe("sonde_group_in_rotation", "Number of members of the group that gateways send requests to.", "group")
	groupPanicDesc    = describe("sonde_group_panicking", "1 while gateways use all members of the group because too few are ready, otherwise 0.", "group")
	groupHeldDesc     = describe("sonde_group_restarts_withheld", "Number of members of the group that fail and are not restarted because the group, with hold_restarts, would have too few ready members.", "group")
	groupFrozenDesc   = describe("sonde_group_frozen", "1 while gateways keep what they have: the group waits for its members to be decided, or the engine is isolated. Otherwise 0.", "group")
	buildInfoDesc     = describe("sonde_build_info", "A metric with a constant '1' value labeled by version and goversion of the engine.", "version", "goversion")
)

// Metrics of each maintenance.
var maintenanceMetrics = []metric[api.Maintenance]{
	gauge("sonde_maintenance_active", "1 during the maintenance, otherwise 0.", func(m api.Maintenance) float64 { return number(m.Active) }, "maintenance"),
	gauge("sonde_maintenance_targets", "Number of targets that are under maintenance by it, and not by another one that ends later.", func(m api.Maintenance) float64 { return float64(m.Targets) }, "maintenance"),
}

// Metrics of the configuration that is pushed to the cluster.
var clusterRevisionMetrics = []metric[*api.Cluster]{
	gauge("sonde_cluster_revision", "Number of the revision of the pushed configuration that this engine runs, 0 for none.", func(c *api.Cluster) float64 { return float64(c.Config.Revision) }),
	gauge("sonde_cluster_revision_current", "Number of the revision that this engine is to run, by what etcd has said last.", func(c *api.Cluster) float64 { return float64(wanted(c)) }),
}

// wanted returns the revision that an engine should run: the one that it tries, or else the current one.
func wanted(c *api.Cluster) int64 {
	if c.Config.Tries(c.Name) {
		return c.Config.Trial.Revision
	}
	return c.Config.Current
}

// Metrics of the cluster.
var clusterMetrics = []metric[*api.Cluster]{
	gauge("sonde_cluster_members", "Number of engines that share targets with this one, and this one, by what etcd has said last.", func(c *api.Cluster) float64 { return float64(len(c.Members)) }),
	gauge("sonde_cluster_shards_owned", "Number of shards whose targets this engine probes.", func(c *api.Cluster) float64 { return float64(c.Shards) }),
	gauge("sonde_cluster_lease_seconds", "Time in seconds until this engine restarts no targets and tells nothing, unless its lease is renewed before.", func(c *api.Cluster) float64 { return c.LeaseSeconds }),
	gauge("sonde_cluster_allowed", "1 while the lease of this engine lasts, otherwise 0.", func(c *api.Cluster) float64 { return number(c.Allowed) }),
	gauge("sonde_cluster_doubtful", "1 while this engine doubts its own verdicts: its votes do not count, and it restarts no shared targets, or only those that have answered; otherwise 0.", func(c *api.Cluster) float64 { return number(c.Doubt != api.DoubtNone) }),
	gauge("sonde_cluster_drained", "1 while this engine is drained: it is to own no shards, unless all engines are drained; otherwise 0.", func(c *api.Cluster) float64 {
		return number(slices.ContainsFunc(c.Members, func(m api.ClusterMember) bool { return m.Name == c.Name && m.Drained }))
	}),
	gauge("sonde_quorum_polls", "Number of probes with a quorum that this engine attempts, and votes on.", func(c *api.Cluster) float64 { return float64(c.Polls) }),
	gauge("sonde_quorum_gray", "Number of probes of targets that this engine owns, on which engines differ.", func(c *api.Cluster) float64 { return float64(c.Gray) }),
}

// Metrics of reloads, with the names that Prometheus has for its own.
var reloadMetrics = []metric[api.Reload]{
	gauge("sonde_config_last_reload_successful", "Whether the last reload of the configuration was applied: 1, or 0 if it was rejected. 1 before the first reload.", func(r api.Reload) float64 { return number(r.Error == nil) }),
	gauge("sonde_config_last_reload_success_timestamp_seconds", "Time at which the configuration in use was applied, in seconds since 1970.", func(r api.Reload) float64 { return unixTime(r.Accepted) }),
}

// Metrics of each gateway.
var gatewayMetrics = []metric[group.GatewayStatus]{
	counter("sonde_gateway_outputs_total", "Total number of times that the gateway was given what it needs: answers, commands or files.", func(g group.GatewayStatus) float64 { return float64(g.Outputs) }, "gateway", "output"),
	counter("sonde_gateway_errors_total", "Total number of failed attempts to bring the gateway up to date.", func(g group.GatewayStatus) float64 { return float64(g.Errors) }, "gateway", "output"),
	counter("sonde_gateway_refused_total", "Total number of refused requests of the gateway: without the token, for an unknown name, malformed, or beyond a limit.", func(g group.GatewayStatus) float64 { return float64(g.Refused) }, "gateway", "output"),
	gauge("sonde_gateway_failing", "1 while the latest attempt to bring the gateway up to date has failed, for at least one source, otherwise 0.", func(g group.GatewayStatus) float64 { return number(g.Error != "") }, "gateway", "output"),
	gauge("sonde_gateway_failing_sources", "Number of sources for which the latest attempt to bring the gateway up to date has failed: groups, files, the listener and others that can fail while the rest does not.", func(g group.GatewayStatus) float64 { return float64(g.Failing) }, "gateway", "output"),
	gauge("sonde_gateway_last_output_timestamp_seconds", "When the gateway was last given what it needs, in seconds since 1970; 0 for never.", func(g group.GatewayStatus) float64 { return unixTime(g.Last) }, "gateway", "output"),
}

// Metrics of each container runtime.
var runtimeMetrics = []metric[api.Runtime]{
	gauge("sonde_runtime_up", "1 while the container runtime answers, otherwise 0: then nothing is known of its containers, and none is restarted.", func(r api.Runtime) float64 { return number(r.Error == "") }, "runtime"),
}

// Metrics of each source of targets.
var discoveryMetrics = []metric[discover.Status]{
	gauge("sonde_discovery_elements", "Number of elements that the discover block has found last.", func(d discover.Status) float64 { return float64(d.Elements) }, "discover"),
	gauge("sonde_discovery_failing", "1 while the latest answer to the discover block is broken, incomplete or empty, otherwise 0.", func(d discover.Status) float64 { return number(d.Error != "" && d.LeftOut == 0) }, "discover"),
	gauge("sonde_discovery_left_out", "Number of elements of the latest answer that are left out, since their addresses or labels are invalid.", func(d discover.Status) float64 { return float64(d.LeftOut) }, "discover"),
	gauge("sonde_discovery_last_answer_timestamp_seconds", "When the last complete answer came, in seconds since 1970; 0 for never.", func(d discover.Status) float64 { return unixTime(d.Answered) }, "discover"),
}

// Metrics of all targets.
var summaryMetrics = []metric[engine.Summary]{
	gauge("sonde_targets", "Number of targets.", func(s engine.Summary) float64 { return float64(s.Targets) }),
	gauge("sonde_targets_started", "Number of targets that are running and whose startup probes have passed.", func(s engine.Summary) float64 { return float64(s.Started) }),
	gauge("sonde_targets_ready", "Number of targets that have started and whose readiness probes are passing.", func(s engine.Summary) float64 { return float64(s.Ready) }),
	gauge("sonde_targets_in_trouble", "Number of targets in trouble: failing, not ready, crash-looping, cannot start, exited, restart blocked, blind or degraded.", func(s engine.Summary) float64 { return float64(s.States.InTrouble()) }),
	gauge("sonde_targets_live", "Number of targets of which no startup or liveness probe is failing.", func(s engine.Summary) float64 { return float64(s.Live) }),
}

// Metrics of the latest attempt of each probe, which has one series of each that applies.
var (
	lastDurationDesc = describe("sonde_probe_last_duration_seconds", "Duration of the probe's latest attempt in seconds, including retries.", "target", "kind", "name")
	lastResultDesc   = describe("sonde_probe_last_result_info", "A metric with a constant '1' value labeled by outcome and reason of the probe's latest attempt.", "target", "kind", "name", "outcome", "reason")
	lastFaultDesc    = describe("sonde_probe_last_fault_timestamp_seconds", "When the probe's latest failure or warning on its instance was, in seconds since 1970, labeled by its outcome and reason.", "target", "kind", "name", "outcome", "reason")
	faultRatioDesc   = describe("sonde_probe_recent_faults_ratio", "Share of the probe's latest attempts, up to 100, that had the outcome of its latest failure or warning.", "target", "kind", "name", "outcome")
	httpStatusDesc   = describe("sonde_probe_http_status_code", "Status code of the response to the probe's latest attempt.", "target", "kind", "name")
	certExpiryDesc   = describe("sonde_probe_ssl_earliest_cert_expiry", "When the first of the certificates expires that the server has sent in the probe's latest attempt, in seconds since 1970.", "target", "kind", "name")
)

// Metrics of each target.
var targetMetrics = []metric[*engine.TargetStatus]{
	gauge("sonde_target_started", "Whether the target is running and its startup probes have passed (1 for yes, 0 for no).", func(t *engine.TargetStatus) float64 { return number(t.Started) }, "target"),
	gauge("sonde_target_ready", "Whether the target has started and its readiness probes are passing (1 for yes, 0 for no).", func(t *engine.TargetStatus) float64 { return number(t.Ready) }, "target"),
	gauge("sonde_target_in_trouble", "Whether the target is in trouble (1 for yes, 0 for no).", func(t *engine.TargetStatus) float64 { return number(t.State.InTrouble()) }, "target"),
	gauge("sonde_target_degraded", "Whether the target is degraded: ready, with a probe that warns (1 for yes, 0 for no).", func(t *engine.TargetStatus) float64 { return number(t.State == probe.StateDegraded) }, "target"),
	gauge("sonde_target_live", "Whether no startup or liveness probe of the target is failing (1 for yes, 0 for no).", func(t *engine.TargetStatus) float64 { return number(t.Live) }, "target"),
	counter("sonde_target_restarts_total", "Total number of restarts of the target.", func(t *engine.TargetStatus) float64 { return float64(t.Instance.Restarts) }, "target"),
}

// Metrics of each probe.
var probeMetrics = []metric[*engine.Status]{
	gauge("sonde_probe_passing", "Whether the probe's verdict is passing (1), or failing or undecided (0).", func(p *engine.Status) float64 { return number(p.Verdict == probe.Passing) }, "target", "kind", "name"),
	gauge("sonde_probe_undecided", "Whether the probe has no verdict yet (1 for yes, 0 for no).", func(p *engine.Status) float64 { return number(p.Verdict == probe.Undecided) }, "target", "kind", "name"),
	gauge("sonde_probe_consecutive_errors", "Number of consecutive attempts that ended in an error (outcome unknown).", func(p *engine.Status) float64 { return float64(p.Errors) }, "target", "kind", "name"),
	counter("sonde_probe_changes_total", "Total number of changes of the probe's verdict or of the instance it is about.", func(p *engine.Status) float64 { return float64(p.Changes) }, "target", "kind", "name"),
}
