package daemon

import (
	"strings"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/api/metrics"
	"github.com/sonde-probe/sonde/notify"
)

// restoreNotified makes the notifiers go on where those of the previous engine were, however long ago.
// The histories must have been restored.
func (d *daemon) restoreNotified(state store.Restored) {
	values := map[string][]byte{}
	for key, value := range state.Values {
		if strings.HasPrefix(key, notify.KeyPrefix) {
			values[key] = value
		}
	}
	for _, err := range d.notifiers.Restore(values) {
		d.log.Warn("state of a notifier discarded", "error", err)
	}
}

// markNotified says that the notifiers remember something else. The history of a group is urgent, as
// that of a target is. A cursor is not: what lies behind an old one is told again. What receivers know of a group, or of a target
// that engines share, is also kept for the engine that has it next.
func (d *daemon) markNotified(key string) {
	if subject, ok := notify.ToldSubject(key); ok {
		d.cluster.markTold(subject)
	}
	switch {
	case d.state == nil:
	case strings.HasPrefix(key, notify.KeyGroup):
		d.state.MarkUrgent(key)
	default:
		d.state.Mark(key)
	}
}

// notices is the fleet.Notices of a daemon: its notifiers, which are made after the fleet.
type notices struct{ *daemon }

// Told implements fleet.Notices.
func (n notices) Told(target string) []byte { return n.notifiers.Told(target) }

// SetTold implements fleet.Notices.
func (n notices) SetTold(target string, value []byte) error {
	return n.notifiers.SetTold(target, value)
}

// ToldOfGroup implements fleet.Notices.
func (n notices) ToldOfGroup(group string) []byte { return n.notifiers.ToldOfGroup(group) }

// SetToldOfGroup implements fleet.Notices.
func (n notices) SetToldOfGroup(group string, value []byte) error {
	return n.notifiers.SetToldOfGroup(group, value)
}

// notifierStatuses returns how the receivers of notifiers fare.
func (d *daemon) notifierStatuses() (all []api.Notifier) {
	for _, st := range d.notifiers.Statuses() {
		all = append(all, api.Notifier{
			Name: st.Notifier, Output: st.Output, Receiver: st.Receiver, Firing: st.Firing, Held: st.Held, Pending: st.Pending, PendingSince: st.PendingSince,
			Sent: st.Sent, Last: st.Last, Dropped: st.Dropped, Lost: st.Lost, Errors: st.Failed, Error: st.Error, ErrorSince: st.ErrorSince,
		})
	}
	return all
}

// notifierMetrics returns the numbers of the receivers of notifiers.
func (d *daemon) notifierMetrics() (all []metrics.Notifier) {
	for _, st := range d.notifiers.Statuses() {
		all = append(all, metrics.Notifier{
			Notifier: st.Notifier, Output: st.Output, Receiver: st.Receiver, Sent: st.Sent, Failed: st.Failed, Dropped: st.Dropped, Lost: st.Lost,
			Pending: st.Pending, PendingSince: st.PendingSince, Firing: st.Firing, Held: st.Held,
		})
	}
	return all
}
