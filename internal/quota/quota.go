// Package quota keeps this process within the limits of its machine, and detects whether the machine has denied it
// processes or memory.
//
//	quota.go      Read and DeniedSince: whether something was denied
//	processes.go  Processes: how many processes may be started
//	threads.go    creates threads in advance, before they could be denied
//	limits_*.go   the limits and counts of cgroups and of the user
package quota

import (
	"sync"
	"sync/atomic"
	"time"
)

// reading is the number of refusals up to a point in time.
type reading struct {
	at       time.Time
	refusals int64 // of processes, threads and memory
	short    bool  // this process lacked the descriptors or the memory to read refusals
}

const (
	// maxAge is the maximum age of the result of Read, so that many attempts share a reading.
	maxAge = 50 * time.Millisecond

	// maxBusyAge is the maximum age while another goroutine reads.
	maxBusyAge = time.Second
)

// Read returns a reading for DeniedSince. Both are safe for concurrent use.
func Read() reading { return refusals.recent() }

// DeniedSince reports whether processes, threads or memory were denied to the cgroup of this process since a reading:
// to this process, its children, or others that share its limits. It also returns true if this process lacked the
// resources to read the counts.
func DeniedSince(before reading) bool { return refusals.now().deniedSince(before) }

func (r reading) deniedSince(before reading) bool {
	return before.short || r.short || r.refusals != before.refusals // fewer after a move to another cgroup
}

// refusalCounter reads the number of refusals, once for concurrent callers.
type refusalCounter struct {
	count func() (refusals int64, err error) // since the cgroup was created

	readMu sync.Mutex // held while count reads files
	latest atomic.Pointer[reading]
}

var refusals = refusalCounter{count: countRefusals}

// recent returns a reading that is not much older than maxAge. While another goroutine reads, it accepts one up to
// maxBusyAge instead of waiting: a starved process would lose time in a queue.
func (c *refusalCounter) recent() reading {
	r := c.latest.Load()
	switch {
	case r == nil || time.Since(r.at) > maxBusyAge:
		return c.now()
	case time.Since(r.at) > maxAge && c.readMu.TryLock():
		defer c.readMu.Unlock()
		return c.read()
	}
	return *r
}

// now returns a reading that was begun after the call.
func (c *refusalCounter) now() reading {
	called := time.Now()
	c.readMu.Lock()
	defer c.readMu.Unlock()
	if r := c.latest.Load(); r != nil && !r.at.Before(called) {
		return *r
	}
	return c.read()
}

// read reads the count, and stores it as the latest reading.
func (c *refusalCounter) read() reading {
	r := reading{at: time.Now()}
	count, err := c.count()
	r.refusals, r.short = count, err != nil
	c.latest.Store(&r)
	return r
}
