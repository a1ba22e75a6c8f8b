package metrics

import (
	"time"

	"github.com/sonde-probe/sonde/api"
)

// Metrics of each receiver of a notifier.
var notifyMetrics = []metric[api.Notifier]{
	counter("sonde_notify_sent_total", "Total number of notices that the receiver has accepted.", func(n api.Notifier) float64 { return float64(n.Sent) }, "notifier", "output", "receiver"),
	counter("sonde_notify_failed_total", "Total number of attempts to send notices to the receiver that have failed. They are sent again.", func(n api.Notifier) float64 { return float64(n.Errors) }, "notifier", "output", "receiver"),
	counter("sonde_notify_dropped_total", "Total number of notices that the receiver has rejected. They are not sent again.", func(n api.Notifier) float64 { return float64(n.Dropped) }, "notifier", "output", "receiver"),
	counter("sonde_notify_lost_transitions_total", "Total number of transitions, of all targets, that the history has forgotten before the receiver was told.", func(n api.Notifier) float64 { return float64(n.Lost) }, "notifier", "output", "receiver"),
	gauge("sonde_notify_pending_transitions", "Number of transitions, of all targets, that have not been told or passed over yet.", func(n api.Notifier) float64 { return float64(n.Pending) }, "notifier", "output", "receiver"),
	gauge("sonde_notify_pending_age_seconds", "Time since the first of the pending transitions; 0 without any.", func(n api.Notifier) float64 {
		if n.PendingSince.IsZero() {
			return 0
		}
		return max(0, time.Since(n.PendingSince).Seconds())
	}, "notifier", "output", "receiver"),
	gauge("sonde_notify_firing", "Number of targets and groups of which the receiver was told last that they are in trouble.", func(n api.Notifier) float64 { return float64(n.Firing) }, "notifier", "output", "receiver"),
	gauge("sonde_notify_held", "Number of targets and groups in trouble of which the receiver is not told for now: paused ones, and those that the engine doubts.", func(n api.Notifier) float64 { return float64(n.Held) }, "notifier", "output", "receiver"),
}
