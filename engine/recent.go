package engine

import (
	"math"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

const (
	// maxRecent is how many attempts of a probe Records.Latencies returns: as many as a spark line of the status page shows.
	maxRecent = 30

	// recentPatience is for how long the latencies of a probe are kept after they were last asked for.
	recentPatience = 10 * time.Minute
)

// recent are how long the latest attempts of a probe took, while somebody looks: 48 bytes.
type recent struct {
	askedAt int64
	n       uint8 // how many there are
	next    uint8 // where the next one goes
	took    [maxRecent]uint8
}

// perOctave is into how many steps a doubling of a latency is divided: a step is 9 %, and a byte reaches from a microsecond to an hour.
const perOctave = 8

func packLatency(d time.Duration) uint8 {
	us := max(float64(d)/float64(time.Microsecond), 1)
	return uint8(min(math.Round(perOctave*math.Log2(us)), math.MaxUint8))
}

func unpackLatency(b uint8) time.Duration {
	return time.Duration(math.Exp2(float64(b)/perOctave) * float64(time.Microsecond))
}

// add adds an attempt, and reports whether somebody still looks.
func (r *recent) add(took time.Duration, now int64) bool {
	if now-r.askedAt > int64(recentPatience) {
		return false
	}
	r.took[r.next] = packLatency(took)
	r.next = (r.next + 1) % maxRecent
	r.n = min(r.n+1, maxRecent)
	return true
}

// all returns the latencies, the latest one last.
func (r *recent) all() []time.Duration {
	all := make([]time.Duration, r.n)
	for i := range all {
		all[i] = unpackLatency(r.took[(int(r.next)+maxRecent-int(r.n)+i)%maxRecent])
	}
	return all
}

// Latency is how long the latest attempts of a probe took that could be made, within 5 %.
type Latency struct {
	ID   probe.ID
	Took []time.Duration // the latest one last, 30 at most
	At   time.Time       // the end of the latest one; zero before the first
}

// Latencies returns how long the latest attempts of a target's probes took, since they were first asked for: the engine keeps them,
// in some 200 bytes a probe, for ten minutes after each call. It never waits for the scheduler.
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
