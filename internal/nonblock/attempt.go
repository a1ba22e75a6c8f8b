package nonblock

import (
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// A Stepper is a Handler whose attempts need no goroutine while they wait: it
// works on a descriptor that does not block, and the engine calls it whenever
// there is something to be done. It must find what Probe finds.
type Stepper interface {
	probe.Handler

	// Step takes an attempt as far as it goes without waiting, and says what has
	// to happen next. It is called from one goroutine at a time for each attempt,
	// and must return within microseconds.
	Step(a *Attempt) Progress
}

// Attempt is one attempt of a Stepper. The engine makes it, and uses it for
// another attempt when it is over.
type Attempt struct {
	Target probe.Target
	Event  Event        // why Step is called
	FD     int          // the descriptor to wait for; it is the Stepper's to open and to close
	State  int          // the Stepper's own; 0 when an attempt begins
	Buffer []byte       // likewise; it may be kept for another attempt, whoever makes that
	Result probe.Result // to be filled in before StepDone

	// Since is the Stepper's own too: when what it waits for has begun.
	Since time.Time

	// Spares are sockets that other attempts have left. Where it is nil none are
	// kept: what an attempt has opened it closes.
	Spares *Spares
}

// Spares are TCP sockets for IPv4 that do not block, are connected with nothing and
// bound to nothing, for attempts to use instead of opening and closing their own:
// that is a fourth of what a short attempt costs. The zero value has none. One
// goroutine at a time uses it; who made it closes what is left.
//
// A socket may come back to be waited for that was waited for already.
type Spares struct{ free []int }

// MaxSpares is how many sockets are kept. As many are in use at once as attempts
// wait; only those that begin and end together come back soon.
const MaxSpares = 64

// Put leaves a socket, and reports whether it is kept. If not, close it.
func (s *Spares) Put(fd int) bool {
	if s == nil || len(s.free) == MaxSpares {
		return false
	}
	s.free = append(s.free, fd)
	return true
}

// Take returns the socket that was left last, and false when there is none.
func (s *Spares) Take() (fd int, ok bool) {
	if s == nil || len(s.free) == 0 {
		return 0, false
	}
	last := len(s.free) - 1
	fd, s.free = s.free[last], s.free[:last]
	return fd, true
}

// Event says why Step is called.
type Event uint8

// The events of an attempt.
const (
	StepBegin Event = iota // it begins
	StepReady              // something may be done with FD; or not
	StepLate               // the timeout has passed: say so, close FD, and be done
	StepStop               // nobody asks any more: close FD, and be done
)

// Progress is what has to happen next in an attempt.
type Progress uint8

// What has to happen next. The engine waits for FD by edges: a Stepper that
// waits has been told by the system that it would block.
const (
	StepDone  Progress = iota // nothing: Result says what was found, and FD is closed or among the Spares
	StepWait                  // call Step again when FD is ready; the first time, also if it is so already
	StepBlock                 // call Probe instead: this attempt cannot be made in steps. FD is closed
)
