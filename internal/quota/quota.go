// Package quota keeps this process within the limits of its machine, and says what the
// machine has denied it: processes, memory and processor time.
//
//	quota.go      Read and Since: what was denied
//	processes.go  Processes: how many processes may be started
//	limits_*.go   the limits and counts of cgroups and of the user
package quota

import (
	"sync"
	"sync/atomic"
	"time"
)

// Denied is what this process and its children were denied in a time.
type Denied struct {
	// Resources says that a process or thread was refused, or that a process was killed
	// for want of memory.
	Resources bool

	// CPU is how long cgroups were throttled because their quota of processor time was
	// used up. It is the sum of all processors.
	CPU time.Duration
}

// Reading is what was denied up to a time.
type Reading struct {
	at        time.Time
	refusals  int64 // of processes, threads and memory
	throttled time.Duration
}

// maxAge bounds the age of what Read returns, so that many attempts share a reading.
const maxAge = 50 * time.Millisecond

// Read returns a reading for Since. While another goroutine reads, it is the one before.
// It is safe for concurrent use by multiple goroutines, as is Since.
func Read() Reading { return denials.recent() }

// Since returns what was denied since a reading.
func Since(before Reading) Denied { return denials.now().since(before) }

func (r Reading) since(before Reading) Denied {
	return Denied{Resources: r.refusals > before.refusals, CPU: max(0, r.throttled-before.throttled)}
}

// meter reads what was denied, once for callers that come at the same time.
type meter struct {
	count func() (refusals int64, throttled time.Duration) // since the cgroup was made

	readMu sync.Mutex // held while count reads files
	latest atomic.Pointer[Reading]
}

var denials = meter{count: countDenials}

// recent returns a reading that is not much older than maxAge. Nothing waits for it: a
// process that is starved would lose time in a queue.
func (m *meter) recent() Reading {
	r := m.latest.Load()
	switch {
	case r == nil:
		return m.now()
	case time.Since(r.at) > maxAge && m.readMu.TryLock():
		defer m.readMu.Unlock()
		return m.read()
	}
	return *r
}

// now returns a reading that was begun after the call.
func (m *meter) now() Reading {
	called := time.Now()
	m.readMu.Lock()
	defer m.readMu.Unlock()
	if r := m.latest.Load(); r != nil && !r.at.Before(called) {
		return *r
	}
	return m.read()
}

func (m *meter) read() Reading {
	r := Reading{at: time.Now()}
	r.refusals, r.throttled = m.count()
	m.latest.Store(&r)
	return r
}
