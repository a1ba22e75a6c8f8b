package engine

import (
	"math"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

const (
	// maxRecent is the maximum number of attempts per probe that Records.Latencies returns: the width of a sparkline on the
	// status page.
	maxRecent = 30

	// recentPatience is how long the latencies of a probe are recorded after they were last requested.
	recentPatience = 10 * time.Minute
)

// recent has the durations of the latest attempts of a probe, while they are requested, in 48 bytes.
type recent struct {
	askedAt int64
	n       uint8 // number of durations
	next    uint8 // index of the next one
	took    [maxRecent]uint8
}

// perOctave is the number of steps per doubling of a latency: a step is 9%, and a byte covers a microsecond to an hour.
const perOctave = 8

func packLatency(d time.Duration) uint8 {
	us := max(float64(d)/float64(time.Microsecond), 1)
	return uint8(min(math.Round(perOctave*math.Log2(us)), math.MaxUint8))
}

func unpackLatency(b uint8) time.Duration {
	return time.Duration(math.Exp2(float64(b)/perOctave) * float64(time.Microsecond))
}

// add adds an attempt. It returns false if latencies were not requested recently.
func (r *recent) add(took time.Duration, now int64) bool {
	if now-r.askedAt > int64(recentPatience) {
		return false
	}
	r.took[r.next] = packLatency(took)
	r.next = (r.next + 1) % maxRecent
	r.n = min(r.n+1, maxRecent)
	return true
}

// all returns the latencies, the oldest first.
func (r *recent) all() []time.Duration {
	all := make([]time.Duration, r.n)
	for i := range all {
		all[i] = unpackLatency(r.took[(int(r.next)+maxRecent-int(r.n)+i)%maxRecent])
	}
	return all
}

// Latency has the durations of the latest attempts of a probe, except those that could not be made, within 5%.
type Latency struct {
	ID   probe.ID
	Took []time.Duration // the oldest first, at most 30
	At   time.Time       // end of the latest attempt; zero before the first
}

// Latencies returns the durations of the latest attempts of a target's probes, beginning with the first call of Latencies. The
// engine records them for ten minutes after each call, in about 200 bytes per probe. It never waits for the scheduler.
func (r Records) Latencies(target string) (all []Latency) {
	now := r.engine.scheduler.clock.Now()
	_, slots := r.engine.registry.target(target)
	for _, s := range slots {
		s.mu.Lock()
		of := s.makeRare()
		if of.recent == nil {
			of.recent = new(recent)
		}
		of.recent.askedAt = now
		l := Latency{ID: s.id(), Took: of.recent.all()}
		if s.resultAt != 0 {
			l.At = r.engine.scheduler.clock.Time(s.resultAt)
		}
		s.mu.Unlock()
		all = append(all, l)
	}
	return all
}
