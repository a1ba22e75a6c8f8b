package command

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// limiter starts commands only while this process may have more processes and threads:
// without room for a thread of its own the Go runtime ends the whole process. Commands
// that have to wait are started in order.
type limiter struct {
	// room returns how many processes and threads may be added, and the limit that
	// leaves the least room. False means that there is no limit.
	room func() (left, limit int, ok bool)

	mu       sync.Mutex
	starting int       // commands that may not be counted by room yet
	left     int       // of room, without those that were started since
	limit    int       // likewise
	readAt   time.Time // when room was called
	readFor  time.Duration
	waiting  list.List // of chan struct{}
}

const (
	// perCommand is how many processes and threads a command is expected to add soon: the
	// thread that waits for it, the command, and a child of a shell.
	perCommand = 3

	// A call of room counts for minReading, and for maxReadingCost times as long as it took,
	// so that it takes a twentieth of a processor at most.
	minReading     = time.Millisecond
	maxReadingCost = 20

	// noLimitFor is how long it counts that there is no limit.
	noLimitFor = time.Second

	// recheck is how often a command that waits looks for room that other processes leave.
	recheck = 20 * time.Millisecond
)

// reserve is how many processes and threads are left to the Go runtime and to the
// children of commands: a thread for each processor and some that block, and at most a
// third of the limit.
func reserve(limit int) int { return min(runtime.GOMAXPROCS(0)+16, limit/3) }

// acquire waits for room for a command, for half of the time that ctx leaves: with less
// the command could be blamed for being late. The caller calls started when the command
// runs or could not be started, and grant when it has ended. The error says that there is
// no room.
func (l *limiter) acquire(ctx context.Context) (waited time.Duration, err error) {
	l.mu.Lock()
	if l.waiting.Len() == 0 && l.admit() {
		l.mu.Unlock()
		return 0, nil
	}
	granted := make(chan struct{})
	e := l.waiting.PushBack(granted)
	l.mu.Unlock()
	began := time.Now()
	half := ctx
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		half, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	ticker := time.NewTicker(recheck)
	defer ticker.Stop()
	for {
		select {
		case <-granted:
			return time.Since(began), nil
		case <-ticker.C:
			l.grant()
		case <-half.Done():
			return time.Since(began), l.giveUp(e, granted)
		}
	}
}

// giveUp ends the wait of a command. It returns nil if there is room since a moment ago.
func (l *limiter) giveUp(e *list.Element, granted <-chan struct{}) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-granted:
		return nil
	default:
	}
	l.waiting.Remove(e)
	return fmt.Errorf("no room for another process below the limit of %d processes and threads: %w", l.limit, syscall.EAGAIN)
}

// admit takes the room for a command, and returns false if there is none.
func (l *limiter) admit() bool {
	if time.Since(l.readAt) >= l.readFor {
		l.read()
	}
	if l.left < perCommand {
		return false
	}
	l.left -= perCommand
	l.starting++
	return true
}

func (l *limiter) read() {
	l.readAt = time.Now()
	left, limit, ok := l.room()
	l.readFor = max(minReading, maxReadingCost*time.Since(l.readAt))
	if !ok {
		left, limit, l.readFor = 1<<30, 1<<30, noLimitFor
	}
	l.left, l.limit = left-reserve(limit)-perCommand*l.starting, limit
}

// started says that room counts a command that was acquired, or that it could not be
// started. After a refused fork nothing is started until room is read again, soon. Other
// errors, such as a program that does not exist, say nothing about the room.
func (l *limiter) started(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starting--
	if errors.Is(err, syscall.EAGAIN) {
		l.left, l.readFor = 0, minReading
	}
}

// grant starts the commands that wait, as far as there is room. It is called when a
// command has ended.
func (l *limiter) grant() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.waiting.Front(); e != nil && l.admit(); e = l.waiting.Front() {
		close(l.waiting.Remove(e).(chan struct{}))
	}
}
