package beatprobe

import "time"

const (
	// rejectedRate is how many datagrams a second are read that change nothing. Anyone who reaches the
	// socket can send them, at about 3 µs of processor time each.
	rejectedRate = 10_000

	// rejectedBurst is how many of them are read at once.
	rejectedBurst = 10_000

	// rejectedPause is the shortest time for which nothing is read when there were more.
	rejectedPause = 10 * time.Millisecond
)

// allowance bounds how many datagrams that change nothing are read, as a token bucket.
type allowance struct {
	left float64 // how many may be read now, below 0 if more were
	at   time.Time
}

// spend counts a datagram that was rejected now, and returns for how long to read nothing. Meanwhile datagrams wait
// in the socket's buffer, and the system drops those for which it has no room.
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
