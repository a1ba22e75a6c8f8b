package daemon

import (
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/notify"
)

// notices is the fleet.Notices of an engine. It wraps the notifiers, which are created after the fleet.
type notices struct{ *notify.Notifiers }

// notifierStatuses returns the status of each receiver for the API.
func notifierStatuses(n *notify.Notifiers) (all []api.Notifier) {
	for _, st := range n.Statuses() {
		all = append(all, api.Notifier{
			Name: st.Notifier, Output: st.Output, Receiver: st.Receiver, Firing: st.Firing, Held: st.Held, Pending: st.Pending, PendingSince: st.PendingSince,
			Sent: st.Sent, Last: st.Last, Dropped: st.Dropped, Lost: st.Lost, Errors: st.Failed, Error: st.Error, ErrorSince: st.ErrorSince,
		})
	}
	return all
}
