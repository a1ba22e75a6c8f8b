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

// witness tells how late the attempts of some probes begin, among many that the
// engine's own histogram does not tell apart: it reads when each is due before
// the attempt, and when the attempt began after it. A turn that the engine gives
// up, since it is late, is no excuse: the attempt at the next turn counts as late
// by the time from the first.
type witness struct {
	engine *engine.Engine
	ids    []probe.ID
	mu     sync.Mutex
	seen   []sight         // by id
	late   []time.Duration // since last read
}

// sight is what was last seen of a probe.
type sight struct {
	attempts uint64
	due      time.Time // of the attempt that was not made yet
}

// glance is how often a witness looks. A probe must not have two attempts within
// it.
const glance = 100 * time.Millisecond

func newWitness(e *engine.Engine, ids []probe.ID) *witness {
	return &witness{engine: e, ids: ids, seen: make([]sight, len(ids))}
}

// watch looks until ctx is done.
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
		w.late = append(w.late, max(0, began.Sub(s.due))) // one out of turn is not late
		s.due = time.Time{}
	}
	s.attempts = attempts
	if s.due.IsZero() {
		s.due = st.Next // stands, once seen, until the attempt has been made
	}
}

// read returns how many attempts there were since it was called last, and how
// late they began. An attempt that is due and has not begun counts as if it began
// now: what waits for ever must not look well.
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
