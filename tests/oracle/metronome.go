package oracle

import (
	"context"
	"sync"
	"time"
)

// metronome measures how late the machine wakes a sleeping goroutine.
type metronome struct {
	mu     sync.Mutex
	stalls []stall
}

// stall is an interval in which the machine was late.
type stall struct {
	from, to time.Time
	late     time.Duration
}

// keep measures until ctx is done.
func (m *metronome) keep(ctx context.Context) {
	const beat, notable = 20 * time.Millisecond, 5 * time.Millisecond
	for ctx.Err() == nil {
		from := time.Now()
		time.Sleep(beat)
		to := time.Now()
		if late := to.Sub(from) - beat; late > notable {
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

// worst returns the maximum lateness.
func (m *metronome) worst() (most time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stalls {
		most = max(most, s.late)
	}
	return most
}
