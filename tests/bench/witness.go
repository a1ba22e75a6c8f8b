//go:build linux

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// witness measures the lateness of the attempts of some probes, which the engine's histogram does not distinguish from the others.
// It reads the due time of each attempt before the attempt, and its start afterwards. If the engine skips an attempt because it is
// late, the lateness of the next attempt counts from the due time of the skipped one.
type witness struct {
	engine *engine.Engine
	ids    []probe.ID
	mu     sync.Mutex
	seen   []sight         // by id
	late   []time.Duration // since the last read
}

// sight is the state of a probe at the last look.
type sight struct {
	attempts uint64
	due      time.Time // of the next attempt
}

// glance is the interval between looks. It must be shorter than a period.
const glance = 100 * time.Millisecond

func newWitness(e *engine.Engine, ids []probe.ID) *witness {
	return &witness{engine: e, ids: ids, seen: make([]sight, len(ids))}
}

// watch looks at the probes until ctx is done.
func (w *witness) watch(ctx context.Context) {
	look := time.NewTicker(glance)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			w.look()
		}
	}
}

func (w *witness) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, id := range w.ids {
		if st, ok := w.engine.Status(id); ok {
			w.see(&w.seen[i], st)
		}
	}
}

func (w *witness) see(s *sight, st engine.Status) {
	attempts := uint64(0)
	for _, n := range st.Attempts {
		attempts += n
	}
	if attempts != s.attempts && !s.due.IsZero() {
		began := st.ResultAt.Add(-st.Result.Took)
		w.late = append(w.late, max(0, began.Sub(s.due))) // an extra attempt is not late
		s.due = time.Time{}
	}
	s.attempts = attempts
	if s.due.IsZero() {
		s.due = st.Next // once set, it stays until the attempt was made
	}
}

// read returns the number and the lateness of attempts since the previous call. An attempt that is overdue and has not started
// counts as started now, so that one that waits forever counts as late.
func (w *witness) read(now time.Time) (n int, p99, worst time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		if !s.due.IsZero() && now.Sub(s.due) > 2*glance {
			w.late = append(w.late, now.Sub(s.due))
		}
	}
	slices.Sort(w.late)
	if n = len(w.late); n > 0 {
		p99, worst = w.late[(n-1)*99/100], w.late[n-1]
	}
	w.late = w.late[:0]
	return n, p99, worst
}
