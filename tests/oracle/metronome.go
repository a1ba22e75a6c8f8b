package oracle

import (
	"context"
	"sync"
	"time"
)

// metronome measures how late the machine wakes a sleeping goroutine, and whether its clock was set. If a container has started
// before it was created, by the clock, the kubelet takes it for one from before a restart (K163).
type metronome struct {
	mu     sync.Mutex
	stalls []stall
}

// stall is an interval in which the machine was late, or its clock was wrong.
type stall struct {
	from, to time.Time
	late     time.Duration
}

// keep measures until ctx is done.
func (m *metronome) keep(ctx context.Context) {
	const beat, notable = 20 * time.Millisecond, 5 * time.Millisecond
	begin := time.Now()
	for ctx.Err() == nil {
		from := time.Now()
		time.Sleep(beat)
		to := time.Now()
		late := to.Sub(from) - beat
		if set := (to.Round(0).Sub(begin.Round(0)) - to.Sub(begin)).Abs(); set > Tolerance {
			late = set
		}
		if late > notable {
			m.mu.Lock()
			m.stalls = append(m.stalls, stall{from, to, late})
			m.mu.Unlock()
		}
	}
}

// late returns the lateness between two times.
func (m *metronome) late(from, to time.Time) (sum time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stalls {
		if s.to.After(from) && s.from.Before(to) {
			sum += s.late
		}
	}
	return sum
}

// worst returns the maximum lateness since a time.
func (m *metronome) worst(since time.Time) (most time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stalls {
		if s.to.After(since) {
			most = max(most, s.late)
		}
	}
	return most
}
