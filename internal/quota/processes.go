package quota

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Processes limits the number of processes that this process starts.
var Processes = newLimiter(roomForProcesses, MakeThreads)

// room is the number of processes and threads that may be added.
type room struct {
	left  int
	limit int // the limit that leaves the least room
}

// unlimited is the room if there is no limit.
var unlimited = room{left: math.MaxInt32, limit: math.MaxInt32}

// limiter admits processes while this process may have more processes and threads: if the Go runtime is refused a
// thread of its own, it ends the whole process. It admits waiting callers in order.
type limiter struct {
	room        func() (room, error)
	makeThreads func(int)

	waiting atomic.Int32  // callers of Acquire in the queue
	first   chan struct{} // holds an element while one of them is the first

	readMu sync.Mutex // held while room reads files and makeThreads makes threads

	countMu  sync.Mutex    // guards the fields below
	starting int           // admitted processes that room may not count yet
	running  int           // admitted processes that have not ended
	started  int           // total number of processes that have started or failed to
	reserved int           // threads of admitted processes, plus the tasks taken by Reserve
	threads  int           // number of running processes for which there are threads
	spare    int           // additional threads
	left     int           // the latest room, less the reserve and the processes admitted since
	limit    int           // the latest limit from room; 0 before the first
	readAt   time.Time     // when room was last called
	validFor time.Duration // how long left is valid after readAt
}

func newLimiter(r func() (room, error), makeThreads func(int)) *limiter {
	return &limiter{room: r, makeThreads: makeThreads, first: make(chan struct{}, 1)}
}

const (
	// perProcess is the number of processes and threads that a process is expected to add soon: the thread that waits
	// for it, the process, and its children.
	perProcess = 2 + children

	// children is the number of processes that a process is expected to have concurrently: a shell has one. It may
	// start it at any time until it ends; on a starved machine, that may be long after its own start.
	children = 1

	// The result of room is valid for minValid, or for maxReadingCost times as long as reading it took if that is
	// longer, so that reading takes at most a twentieth of a processor.
	minValid       = time.Millisecond
	maxReadingCost = 20

	// unlimitedFor is the time for which the result unlimited is valid.
	unlimitedFor = time.Second

	// recheck is the interval at which the first caller in the queue checks for room.
	recheck = 5 * time.Millisecond
)

// reserve returns the number of processes and threads that are left to the Go runtime and to further children of
// commands: one thread per processor and 16 that may block, and at most a third of the limit.
func reserve(limit int) int { return min(runtime.GOMAXPROCS(0)+16, limit/3) }

// Acquire waits until there is room for a process, at most for half of the time that ctx leaves: with less time left,
// the process could be blamed for being late. It returns how long it waited, and an error if there is no room, or if
// the limits have never been read. Without an error, the caller must call Started once, when the process runs or could
// not be started, and then Ended once, when no thread waits for the process. Acquire is safe for concurrent use.
func (l *limiter) Acquire(ctx context.Context) (waited time.Duration, err error) {
	return l.AcquireThreads(ctx, 0)
}

// AcquireThreads is Acquire for a process that makes threads. Room for them is kept until ReleaseThreads is called,
// whether or not they exist.
func (l *limiter) AcquireThreads(ctx context.Context, threads int) (waited time.Duration, err error) {
	if l.waiting.Load() == 0 {
		if ok, err := l.admit(threads); ok || err != nil {
			return 0, err
		}
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
	for {
		if ok, err := l.admit(threads); ok || err != nil {
			return time.Since(began), err
		}
		select {
		case <-time.After(recheck):
		case <-ctx.Done():
			return time.Since(began), l.noRoom()
		}
	}
}

// ReleaseThreads returns the room for the threads of an admitted process after they have ended.
func (l *limiter) ReleaseThreads(threads int) {
	l.countMu.Lock()
	defer l.countMu.Unlock()
	l.reserved -= threads
}

// Reserve takes room for the given number of processes and threads that another program is about to create, until
// release is called: by then they exist, or never will. It does not wait. It returns an error if there is no room, or
// if the limits have never been read. It is safe for concurrent use.
func (l *limiter) Reserve(tasks int) (release func(), err error) {
	if !l.isValid() {
		if err := l.read(); err != nil {
			return nil, err
		}
	}
	if !l.takeReserved(tasks) {
		return nil, l.noRoom()
	}
	return sync.OnceFunc(func() { l.ReleaseThreads(tasks) }), nil
}

func (l *limiter) takeReserved(tasks int) bool {
	l.countMu.Lock()
	defer l.countMu.Unlock()
	if l.left < tasks {
		return false
	}
	l.left -= tasks
	l.reserved += tasks
	return true
}

// admit takes the room for a process with threads, or returns false if there is none.
func (l *limiter) admit(threads int) (bool, error) {
	if !l.isValid() {
		if err := l.read(); err != nil {
			return false, err
		}
	}
	admitted, needsThreads := l.take(threads)
	if needsThreads && !l.addThreads() {
		l.Started(syscall.EAGAIN)
		l.Ended()
		l.ReleaseThreads(threads)
		return false, nil
	}
	return admitted, nil
}

func (l *limiter) isValid() bool {
	l.countMu.Lock()
	defer l.countMu.Unlock()
	return time.Since(l.readAt) < l.validFor
}

// take takes the room for a process with threads, if there is enough.
func (l *limiter) take(threads int) (ok, needsThreads bool) {
	l.countMu.Lock()
	defer l.countMu.Unlock()
	if l.left < perProcess+threads {
		return false, false
	}
	l.left -= perProcess + threads
	l.reserved += threads
	l.starting++
	l.running++
	return true, l.running > l.threads && l.limit != unlimited.limit
}

// read reads the room, unless another goroutine has just done so. If it cannot be read, the old value is kept; an error
// means that there is no old value.
func (l *limiter) read() error {
	l.readMu.Lock()
	defer l.readMu.Unlock()
	if l.isValid() {
		return nil
	}
	l.countMu.Lock()
	before := l.started
	l.countMu.Unlock()
	began := time.Now()
	r, err := l.room()
	l.countMu.Lock()
	defer l.countMu.Unlock()
	l.readAt, l.validFor = began, max(minValid, maxReadingCost*time.Since(began))
	switch {
	case err != nil && l.limit == 0:
		l.validFor = 0
		return fmt.Errorf("cannot read the limit of processes: %w", err)
	case err != nil:
	case r == unlimited:
		l.left, l.limit, l.validFor = r.left, r.limit, unlimitedFor
	default:
		uncounted := l.starting + l.started - before
		l.left = r.left - (reserve(r.limit) - l.spare) - perProcess*uncounted - children*max(l.running-uncounted, 0) - l.reserved
		l.limit = r.limit
	}
	return nil
}

func (l *limiter) noRoom() error {
	l.countMu.Lock()
	defer l.countMu.Unlock()
	return fmt.Errorf("the limit of %d processes and threads leaves no room for another process: %w", l.limit, syscall.EAGAIN)
}

// Started must be called when an admitted process runs, or with the error that kept it from starting. After a refused
// fork, none is admitted until room is read again, soon. Other errors, such as a program that does not exist, do not
// affect the room.
func (l *limiter) Started(err error) {
	l.countMu.Lock()
	defer l.countMu.Unlock()
	l.starting--
	l.started++
	if errors.Is(err, syscall.EAGAIN) {
		l.left, l.validFor = 0, minValid
	}
}

// Ended must be called when no thread waits for an admitted process any more.
func (l *limiter) Ended() {
	l.countMu.Lock()
	defer l.countMu.Unlock()
	l.running--
}
