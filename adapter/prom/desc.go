package prom

import "github.com/prometheus/client_golang/prometheus"

// descriptions are the names, help texts and labels of all metrics.
type descriptions struct {
	attempts, duration, inFlight, queued, skipped, lateness, busy *prometheus.Desc
	panics, dropped, probes, buildInfo                            *prometheus.Desc
	passing, undecided, errors, changes                           *prometheus.Desc
	started, ready, live, restarts                                *prometheus.Desc
	kubeletTotal, kubeletDuration                                 *prometheus.Desc

	plugin pluginDescriptions
}

// newDescriptions is a table.
func newDescriptions() descriptions {
	var (
		attempt = []string{"kind", "handler", "outcome"}
		one     = []string{"target", "kind", "probe"}
		target  = []string{"target"}
		none    []string
	)
	return descriptions{
		attempts:  describe("sonde_attempts_total", "Attempts that have ended.", attempt),
		duration:  describe("sonde_attempt_duration_seconds", "How long an attempt took with all its tries.", attempt),
		inFlight:  describe("sonde_attempts_in_flight", "Attempts under way.", none),
		queued:    describe("sonde_attempts_queued", "Attempts that are due and wait for one under way to end.", none),
		skipped:   describe("sonde_turns_skipped_total", "Turns without an attempt: the one before was still under way (overrun), or the engine was too late (late), or late, and the probe was passing (shed).", []string{"reason"}),
		busy:      describe("sonde_loop_busy_seconds_total", "How long the goroutine that starts attempts was awake.", none),
		lateness:  describe("sonde_lateness_seconds", "How long after an attempt was due it began.", none),
		panics:    describe("sonde_handler_panics_total", "Handlers that panicked.", none),
		dropped:   describe("sonde_answers_dropped_total", "Answers about an earlier instance or a replaced probe.", none),
		probes:    describe("sonde_probes", "Probes that there are.", none),
		buildInfo: describe("sonde_build_info", "Always 1; its labels say what runs.", []string{"version", "goversion"}),

		passing:   describe("sonde_probe_passing", "1 if the probe's verdict is passing, 0 if it is failing or undecided.", one),
		undecided: describe("sonde_probe_undecided", "1 if the probe has no verdict yet, else 0.", one),
		errors:    describe("sonde_probe_errors", "How many attempts in a row could not be made.", one),
		changes:   describe("sonde_probe_changes_total", "How often the probe's verdict, or the instance that it is about, has changed.", one),

		started:  describe("sonde_target_started", "1 if the target's instance runs and its startup probes passed, else 0.", target),
		ready:    describe("sonde_target_ready", "1 if the target has started and its readiness probes pass, else 0.", target),
		live:     describe("sonde_target_live", "1 if none of the target's startup and liveness probes fails, else 0.", target),
		restarts: describe("sonde_target_restarts_total", "How many instances came before the present one.", target),

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

// all returns the descriptions of our own metrics, without the kubelet's.
func (d *descriptions) all() []*prometheus.Desc {
	return append(d.plugin.all(),
		d.attempts, d.duration, d.inFlight, d.queued, d.skipped, d.lateness, d.busy,
		d.panics, d.dropped, d.probes, d.buildInfo,
		d.passing, d.undecided, d.errors, d.changes,
		d.started, d.ready, d.live, d.restarts,
	)
}
