package metrics

import "time"

// Notifier has the numbers of one receiver of a notifier.
type Notifier struct {
	Notifier, Output, Receiver string

	Sent    uint64 // notices that it has accepted
	Failed  uint64 // failed attempts to send some
	Dropped uint64 // notices that it has rejected
	Lost    uint64 // transitions that were forgotten before they were told
	Pending uint64 // transitions that it was not told yet

	PendingSince time.Time // the first of them; zero without any
	Firing       int       // subjects of which it was told last that they are in trouble
	Held         int       // subjects in trouble of which it is not told for now
}

// Metrics of each receiver of a notifier.
var notifyMetrics = []metric[Notifier]{
	counter("sonde_notify_sent_total", "Total number of notices that the receiver has accepted.", func(n Notifier) float64 { return float64(n.Sent) }, "notifier", "output", "receiver"),
	counter("sonde_notify_failed_total", "Total number of attempts to send notices to the receiver that have failed. They are sent again.", func(n Notifier) float64 { return float64(n.Failed) }, "notifier", "output", "receiver"),
	counter("sonde_notify_dropped_total", "Total number of notices that the receiver has rejected. They are not sent again.", func(n Notifier) float64 { return float64(n.Dropped) }, "notifier", "output", "receiver"),
	counter("sonde_notify_lost_transitions_total", "Total number of transitions, of all targets, that the history has forgotten before the receiver was told.", func(n Notifier) float64 { return float64(n.Lost) }, "notifier", "output", "receiver"),
	gauge("sonde_notify_pending_transitions", "Number of transitions, of all targets, that have not been told or passed over yet.", func(n Notifier) float64 { return float64(n.Pending) }, "notifier", "output", "receiver"),
	gauge("sonde_notify_pending_age_seconds", "Time since the first of the pending transitions; 0 without any.", func(n Notifier) float64 {
		if n.PendingSince.IsZero() {
			return 0
		}
		return max(0, time.Since(n.PendingSince).Seconds())
	}, "notifier", "output", "receiver"),
	gauge("sonde_notify_firing", "Number of targets and groups of which the receiver was told last that they are in trouble.", func(n Notifier) float64 { return float64(n.Firing) }, "notifier", "output", "receiver"),
	gauge("sonde_notify_held", "Number of targets and groups in trouble of which the receiver is not told for now: paused ones, and those that the engine doubts.", func(n Notifier) float64 { return float64(n.Held) }, "notifier", "output", "receiver"),
}
