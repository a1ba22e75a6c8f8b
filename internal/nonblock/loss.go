package nonblock

import (
	"fmt"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// MaySendAgain is the minimum duration of an attempt in which a segment was retransmitted (TCP_RTO_MIN of Linux).
const MaySendAgain = 200 * time.Millisecond

// Lossy returns the result of an attempt over a new connection with that many retransmissions: they turn a success into a warning.
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
