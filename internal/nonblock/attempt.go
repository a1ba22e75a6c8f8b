package nonblock

import "github.com/sonde-probe/sonde/probe"

// A Stepper is a Handler that can make attempts without a goroutine: it works on a
// non-blocking descriptor, and the engine calls it when the descriptor is ready. Its
// attempts have the results that Probe would return.
type Stepper interface {
	probe.Handler

	// Step continues an attempt until it would have to wait, and returns what has to
	// happen next. It returns within microseconds. Calls for one attempt are never
	// concurrent.
	Step(a *Attempt) Progress
}

// Attempt is one attempt of a Stepper. When it is over, the engine may use it again for
// an attempt of any Stepper.
type Attempt struct {
	Target probe.Target
	Event  Event        // why Step is called
	FD     int          // to wait for; the Stepper opens and closes it
	Buffer []byte       // for the Stepper; what another attempt left in it has no meaning
	Result probe.Result // to be set before Step returns StepDone

	// Spares are sockets to use instead of opening new ones. Nil: the attempt closes its
	// socket.
	Spares *Spares

	// Set is the set that FD is in already: it is not added again. Nil: it is in none, or may have
	// changed since that was last looked at.
	Set *Set

	// Wake asks for another attempt of the same probe, as that of a probe.WakingHandler. Nil:
	// the handler is none.
	Wake func()

	// Kept has the connection of the attempt before, and keeps that of this one, if the
	// Stepper sets it before each step of an Exchange. Nil: the attempt has its own.
	Kept *Kept

	exchange exchangeState
}

// Event is why Step is called.
type Event uint8

// The events of an attempt.
const (
	StepBegin Event = iota // the attempt begins
	StepReady              // FD may be ready
	StepLate               // the timeout has passed: set Result, close FD, and return StepDone
	StepStop               // the attempt is cancelled: close FD, and return StepDone
)

// Progress is what has to happen next in an attempt.
type Progress uint8

// What has to happen next. The engine waits for FD by edges: before Step returns
// StepWait, a system call on FD must have returned EAGAIN.
const (
	StepDone  Progress = iota // nothing: Result is set, and FD is closed or among the Spares
	StepWait                  // call Step again when FD is ready; the first time, also if it is ready already
	StepBlock                 // call Probe instead: FD is closed
	StepKeep                  // of a Protocol's Judge only: as StepDone, and the connection may be kept for another attempt
)

// Spares are non-blocking TCP sockets for IPv4, neither connected nor bound, that
// attempts use instead of opening and closing their own: that is a quarter of the cost
// of a short attempt. The zero value has none. It is not safe for concurrent use. Its
// owner closes what is left.
//
// A socket from Spares may be in a Set already.
type Spares struct{ free []int }

// maxSpares is how many sockets are kept. Only attempts that begin and end together
// return many soon.
const maxSpares = 64

// Put adds a socket, and reports whether it is kept. If not, the caller closes it.
func (s *Spares) Put(fd int) bool {
	if s == nil || len(s.free) == maxSpares {
		return false
	}
	s.free = append(s.free, fd)
	return true
}

// Take removes and returns the socket that was added last, and false if there is none.
func (s *Spares) Take() (fd int, ok bool) {
	if s == nil || len(s.free) == 0 {
		return 0, false
	}
	last := len(s.free) - 1
	fd, s.free = s.free[last], s.free[:last]
	return fd, true
}
