package nonblock

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// MaySendAgain is how long an attempt takes at least in which a segment was sent again (TCP_RTO_MIN of Linux).
const MaySendAgain = 200 * time.Millisecond

// Lossy returns the result of an attempt over a new connection, over which segments were sent again: a success is a warning.
func Lossy(r probe.Result, retransmissions int) probe.Result {
	if retransmissions == 0 || r.Outcome != probe.Success {
		return r
	}
	times := "a retransmission"
	if retransmissions > 1 {
		times = fmt.Sprintf("%d retransmissions", retransmissions)
	}
	if r.Detail != "" {
		r.Detail = ": " + r.Detail
	}
	r.Outcome, r.Reason, r.Detail = probe.Warning, probe.ReasonTCPLoss, "answered after "+times+r.Detail
	return r
}
