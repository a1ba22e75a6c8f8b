package prom

import "github.com/prometheus/client_golang/prometheus"

// descriptions has a Desc for each metric.
type descriptions struct {
	attempts, duration, inFlight, queued, skipped, lateness, busy *prometheus.Desc
	panics, dropped, probes, buildInfo                            *prometheus.Desc
	passing, undecided, errors, changes                           *prometheus.Desc
	started, ready, live, restarts                                *prometheus.Desc
	kubeletTotal, kubeletDuration                                 *prometheus.Desc

	plugin pluginDescriptions
}

// newDescriptions has the names, help texts and labels of all metrics.
func newDescriptions() descriptions {
	var (
		attempt = []string{"kind", "handler", "outcome"}
		probeID = []string{"target", "kind", "name"}
		target  = []string{"target"}
		none    []string
	)
	return descriptions{
		attempts:  describe("sonde_attempts_total", "Total number of finished attempts by probe kind, handler and outcome.", attempt),
		duration:  describe("sonde_attempt_duration_seconds", "Duration of attempts in seconds, including retries.", attempt),
		inFlight:  describe("sonde_attempts_in_flight", "Number of attempts in progress.", none),
		queued:    describe("sonde_attempts_queued", "Number of attempts that are due and wait for a free slot.", none),
		skipped:   describe("sonde_attempts_skipped_total", "Total number of skipped attempts by reason: the previous attempt was in progress (overrun), the engine was late by a period or more (late), or it was overloaded and the probe was passing (shed).", []string{"reason"}),
		busy:      describe("sonde_scheduler_busy_seconds_total", "Total time in seconds that the scheduler was not idle.", none),
		lateness:  describe("sonde_attempt_lateness_seconds", "Time in seconds from the due time of an attempt to its start.", none),
		panics:    describe("sonde_handler_panics_total", "Total number of panics in handlers.", none),
		dropped:   describe("sonde_results_dropped_total", "Total number of results dropped because the instance or the probe was replaced during the attempt.", none),
		probes:    describe("sonde_probes", "Number of probes.", none),
		buildInfo: describe("sonde_build_info", "A metric with a constant '1' value labeled by version and goversion of the engine.", []string{"version", "goversion"}),

		passing:   describe("sonde_probe_passing", "Whether the probe's verdict is passing (1), or failing or undecided (0).", probeID),
		undecided: describe("sonde_probe_undecided", "Whether the probe has no verdict yet (1 for yes, 0 for no).", probeID),
		errors:    describe("sonde_probe_consecutive_errors", "Number of consecutive attempts that ended in an error (outcome unknown).", probeID),
		changes:   describe("sonde_probe_changes_total", "Total number of changes of the probe's verdict or of the instance it is about.", probeID),

		started:  describe("sonde_target_started", "Whether the target is running and its startup probes have passed (1 for yes, 0 for no).", target),
		ready:    describe("sonde_target_ready", "Whether the target has started and its readiness probes are passing (1 for yes, 0 for no).", target),
		live:     describe("sonde_target_live", "Whether no startup or liveness probe of the target is failing (1 for yes, 0 for no).", target),
		restarts: describe("sonde_target_restarts_total", "Total number of restarts of the target.", target),

		plugin: newPluginDescriptions(),

		kubeletTotal: describe("prober_probe_total",
			"Cumulative number of a liveness, readiness or startup probe for a container by result.",
			[]string{"probe_type", "result", "container", "pod", "namespace", "pod_uid"}),
		kubeletDuration: describe("prober_probe_duration_seconds",
			"Duration in seconds for a probe response.",
			[]string{"probe_type", "container", "pod", "namespace"}),
	}
}

func describe(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// all returns the descriptions of all metrics but the kubelet's.
func (d *descriptions) all() []*prometheus.Desc {
	return append(d.plugin.all(),
		d.attempts, d.duration, d.inFlight, d.queued, d.skipped, d.lateness, d.busy,
		d.panics, d.dropped, d.probes, d.buildInfo,
		d.passing, d.undecided, d.errors, d.changes,
		d.started, d.ready, d.live, d.restarts,
	)
}
