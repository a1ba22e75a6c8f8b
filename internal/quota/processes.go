package quota

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Processes limits the processes that this process starts.
var Processes = newLimiter(roomForProcesses)

// Limiter admits processes while this process may have more processes and threads:
// without room for a thread of its own the Go runtime ends the whole process. It admits
// those that wait in order.
type Limiter struct {
	// room returns how many processes and threads may be added, and the limit that
	// leaves the least room. False means that there is no limit.
	room func() (left, limit int, ok bool)

	waiting atomic.Int32  // callers of Acquire in the queue
	first   chan struct{} // holds an element while one of them is the first

	roomMu   sync.Mutex    // guards the fields below; held while room reads files
	starting int           // processes that were admitted, and may not be counted by room yet
	left     int           // what room has returned, without the reserve and the processes admitted since
	limit    int           // as room has returned it
	readAt   time.Time     // when room was called
	validFor time.Duration // how long left is valid after readAt
}

func newLimiter(room func() (left, limit int, ok bool)) *Limiter {
	return &Limiter{room: room, first: make(chan struct{}, 1)}
}

const (
	// perProcess is how many processes and threads a process is expected to add soon: the
	// thread that waits for it, the process, and a child of a shell.
	perProcess = 3

	// A call of room is valid for minValid, and for maxReadingCost times as long as it took,
	// so that it takes a twentieth of a processor at most.
	minValid       = time.Millisecond
	maxReadingCost = 20

	// unlimitedFor is how long the answer is valid that there is no limit.
	unlimitedFor = time.Second

	// recheck is how often the first in the queue looks for room that others leave.
	recheck = 5 * time.Millisecond
)

// reserve is how many processes and threads are left to the Go runtime and to the
// children of commands: a thread for each processor and some that block, and at most a
// third of the limit.
func reserve(limit int) int { return min(runtime.GOMAXPROCS(0)+16, limit/3) }

// Acquire waits until there is room for a process, for half of the time that ctx leaves:
// with less the process could be blamed for being late. It returns how long it has waited,
// and an error if there is no room. Otherwise the caller calls Started once, when the
// process runs or could not be started. It is safe for concurrent use by multiple
// goroutines.
func (l *Limiter) Acquire(ctx context.Context) (waited time.Duration, err error) {
	if l.waiting.Load() == 0 && l.admit() {
		return 0, nil
	}
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	began := time.Now()
	if end, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		ctx = half
	}
	select {
	case l.first <- struct{}{}:
		defer func() { <-l.first }()
	case <-ctx.Done():
		return time.Since(began), l.noRoom()
	}
	for !l.admit() {
		select {
		case <-time.After(recheck):
		case <-ctx.Done():
			return time.Since(began), l.noRoom()
		}
	}
	return time.Since(began), nil
}

// admit takes the room for a process, and returns false if there is none.
func (l *Limiter) admit() bool {
	l.roomMu.Lock()
	defer l.roomMu.Unlock()
	if time.Since(l.readAt) >= l.validFor {
		l.read()
	}
	if l.left < perProcess {
		return false
	}
	l.left -= perProcess
	l.starting++
	return true
}

func (l *Limiter) read() {
	l.readAt = time.Now()
	left, limit, ok := l.room()
	l.validFor = max(minValid, maxReadingCost*time.Since(l.readAt))
	if !ok {
		left, limit, l.validFor = 1<<30, 1<<30, unlimitedFor
	}
	l.left, l.limit = left-reserve(limit)-perProcess*l.starting, limit
}

func (l *Limiter) noRoom() error {
	l.roomMu.Lock()
	defer l.roomMu.Unlock()
	return fmt.Errorf("no room for another process below the limit of %d processes and threads: %w", l.limit, syscall.EAGAIN)
}

// Started says that a process that was admitted runs, or why it could not be started.
// After a refused fork none is admitted until room is read again, soon. Other errors, such
// as a program that does not exist, say nothing about the room.
func (l *Limiter) Started(err error) {
	l.roomMu.Lock()
	defer l.roomMu.Unlock()
	l.starting--
	if errors.Is(err, syscall.EAGAIN) {
		l.left, l.validFor = 0, minValid
	}
}
