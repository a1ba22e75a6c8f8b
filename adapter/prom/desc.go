package prom

import "github.com/prometheus/client_golang/prometheus"

// Labels that several metrics share.
var (
	attemptLabels = []string{"kind", "handler", "outcome"}
	probeLabels   = []string{"target", "kind", "name"}
	targetLabels  = []string{"target"}
	pluginLabels  = []string{"plugin"}
)

func describe(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// descriptions are those of all metrics but the kubelet's.
var descriptions = []*prometheus.Desc{
	attemptsDesc, durationDesc, inFlightDesc, queuedDesc, skippedDesc, busyDesc, latenessDesc, panicsDesc,
	droppedDesc, probesDesc, healthDesc, isolatedDesc, stallsDesc, stalledDesc, verdictsDesc, omittedDesc, buildInfoDesc,
	probePassingDesc, probeUndecidedDesc, probeErrorsDesc, probeChangesDesc, targetsDesc, targetsStartedDesc,
	targetsReadyDesc, targetsLiveDesc, targetStartedDesc, targetReadyDesc, targetLiveDesc, targetRestartsDesc,
	pluginReadyDesc, pluginCompileDesc, pluginCacheHitDesc, pluginSuspendedDesc, pluginSuspendsDesc,
	pluginInstancesDesc, pluginWaitingDesc, pluginWaitsDesc, pluginStartedDesc, pluginStartDesc, pluginErrorsDesc,
	pluginDeniedDesc, pluginHeldDesc, pluginDroppedDesc, pluginGaugeDesc, pluginCountDesc,
	stateWrittenDesc, stateSizeDesc, stateErrorsDesc,
}

// Metrics of the engine.
var (
	attemptsDesc   = describe("sonde_attempts_total", "Total number of finished attempts by probe kind, handler and outcome.", attemptLabels)
	durationDesc   = describe("sonde_attempt_duration_seconds", "Duration of attempts in seconds, including retries.", attemptLabels)
	inFlightDesc   = describe("sonde_attempts_in_flight", "Number of attempts in progress.", nil)
	queuedDesc     = describe("sonde_attempts_queued", "Number of attempts that are due and wait for a free slot.", nil)
	skippedDesc    = describe("sonde_attempts_skipped_total", "Total number of skipped attempts by reason: the previous attempt was in progress (overrun), the engine was late by a period or more (late), or it was overloaded and the probe was passing (shed).", []string{"reason"})
	busyDesc       = describe("sonde_scheduler_busy_seconds_total", "Total time in seconds that the scheduler was not idle.", nil)
	latenessDesc   = describe("sonde_attempt_lateness_seconds", "Time in seconds from the due time of an attempt to its start.", nil)
	panicsDesc     = describe("sonde_handler_panics_total", "Total number of panics in handlers.", nil)
	droppedDesc    = describe("sonde_results_dropped_total", "Total number of results dropped because the instance or the probe was replaced during the attempt.", nil)
	logDroppedDesc = describe("sonde_log_records_dropped_total", "Total number of log records dropped because the log was read too slowly or could not be written.", nil)
	probesDesc     = describe("sonde_probes", "Number of probes.", nil)
	healthDesc     = describe("sonde_health_score", "Health score of the engine itself: 0 is healthy, from 2 on it restarts nothing, 8 is the worst.", nil)
	stallsDesc     = describe("sonde_stalls_total", "Total number of stalls of the engine: its process was stopped or short of processor time.", nil)
	stalledDesc    = describe("sonde_stalled_seconds_total", "Total time in seconds that the engine was stalled.", nil)
	verdictsDesc   = describe("sonde_verdicts", "Number of probes by kind and verdict.", []string{"kind", "verdict"})
	omittedDesc    = describe("sonde_series_omitted", "Whether the series of each probe and target are left out because there are more probes than metrics_max_probes (1 for yes, 0 for no).", nil)
	buildInfoDesc  = describe("sonde_build_info", "A metric with a constant '1' value labeled by version and goversion of the engine.", []string{"version", "goversion"})
	isolatedDesc   = describe("sonde_isolated", "1 while no target, or no name server, answers the engine any more, otherwise 0.", nil)
)

// Metrics of each probe.
var (
	probePassingDesc   = describe("sonde_probe_passing", "Whether the probe's verdict is passing (1), or failing or undecided (0).", probeLabels)
	probeUndecidedDesc = describe("sonde_probe_undecided", "Whether the probe has no verdict yet (1 for yes, 0 for no).", probeLabels)
	probeErrorsDesc    = describe("sonde_probe_consecutive_errors", "Number of consecutive attempts that ended in an error (outcome unknown).", probeLabels)
	probeChangesDesc   = describe("sonde_probe_changes_total", "Total number of changes of the probe's verdict or of the instance it is about.", probeLabels)
)

// Metrics of all targets.
var (
	targetsDesc        = describe("sonde_targets", "Number of targets.", nil)
	targetsStartedDesc = describe("sonde_targets_started", "Number of targets that are running and whose startup probes have passed.", nil)
	targetsReadyDesc   = describe("sonde_targets_ready", "Number of targets that have started and whose readiness probes are passing.", nil)
	targetsLiveDesc    = describe("sonde_targets_live", "Number of targets of which no startup or liveness probe is failing.", nil)
)

// Metrics of each target.
var (
	targetStartedDesc  = describe("sonde_target_started", "Whether the target is running and its startup probes have passed (1 for yes, 0 for no).", targetLabels)
	targetReadyDesc    = describe("sonde_target_ready", "Whether the target has started and its readiness probes are passing (1 for yes, 0 for no).", targetLabels)
	targetLiveDesc     = describe("sonde_target_live", "Whether no startup or liveness probe of the target is failing (1 for yes, 0 for no).", targetLabels)
	targetRestartsDesc = describe("sonde_target_restarts_total", "Total number of restarts of the target.", targetLabels)
)

// The kubelet's metrics.
var (
	kubeletTotalDesc = describe("prober_probe_total",
		"Cumulative number of a liveness, readiness or startup probe for a container by result.",
		[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"})
	kubeletDurationDesc = describe("prober_probe_duration_seconds",
		"Duration in seconds for a probe response.",
		[]string{"probe_type", "container", "pod", "namespace"})
)
