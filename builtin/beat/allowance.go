package beatprobe

import "time"

const (
	// rejectedRate is the maximum number of rejected datagrams that are read per second. Anyone who can reach the socket can send
	// them; each costs about 3 µs of processor time.
	rejectedRate = 10_000

	// rejectedBurst is the maximum number of rejected datagrams that are read in a burst.
	rejectedBurst = 10_000

	// rejectedPause is the minimum pause in reading when the allowance is used up.
	rejectedPause = 10 * time.Millisecond
)

// allowance is a token bucket that limits how many rejected datagrams are read.
type allowance struct {
	left float64 // how many may be read now; negative if the limit was exceeded
	at   time.Time
}

// spend counts a datagram that was rejected now, and returns how long to pause reading. During the pause, datagrams wait in the
// socket's buffer, and the system drops those that do not fit.
func (a *allowance) spend(now time.Time) (pause time.Duration) {
	if a.at.IsZero() {
		a.left, a.at = rejectedBurst, now
	}
	a.left = min(a.left+now.Sub(a.at).Seconds()*rejectedRate, rejectedBurst) - 1
	a.at = now
	if a.left >= 0 {
		return 0
	}
	return max(time.Duration(-a.left/rejectedRate*float64(time.Second)), rejectedPause)
}
