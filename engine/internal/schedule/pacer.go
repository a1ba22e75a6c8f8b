package schedule

import "time"

// pacerBurst is how far extra attempts may run ahead of the rate. Attempts whose due times are within pacerBurst of each other
// start together.
const pacerBurst = 50 * time.Millisecond

// pacer spreads extra attempts by the generic cell rate algorithm.
type pacer struct {
	interval int64 // average time between two attempts
	burst    int64 // how much earlier than at the average rate an attempt may start
	ideal    int64 // when the next attempt would start without a burst
}

// next returns when an attempt that is due at now may start: as soon as the rate permits, or at the probe's regular time if that
// is earlier.
func (p *pacer) next(now, regular int64) int64 {
	at := max(now, p.ideal-p.burst)
	if regular <= at {
		return regular
	}
	p.ideal = max(p.ideal, now) + p.interval
	return at
}
