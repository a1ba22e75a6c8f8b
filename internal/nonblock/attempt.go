package nonblock

import "github.com/sonde-probe/sonde/probe"

// A Stepper is a Handler that can make attempts without a goroutine: it works on a non-blocking descriptor, and the engine calls it
// when the descriptor is ready. Its attempts have the same results as Probe.
type Stepper interface {
	probe.Handler

	// Step continues an attempt until it would have to wait, and returns how the attempt continues. It returns within microseconds.
	// Calls for the same attempt are never concurrent.
	Step(a *Attempt) Progress
}

// Attempt is one attempt of a Stepper. Afterwards, the engine may reuse it for an attempt of any Stepper.
type Attempt struct {
	Target probe.Target
	Event  Event        // why Step is called
	FD     int          // the descriptor to wait for; the Stepper opens and closes it
	Buffer []byte       // for use by the Stepper; it may contain data of another attempt
	Result probe.Result // must be set before Step returns StepDone

	// Spares are sockets to use instead of opening new ones. If it is nil, the attempt closes its socket.
	Spares *Spares

	// Set is the Set that already contains FD, so that FD is not added again. It is nil if FD is in no Set, or if its state may
	// have changed since it was last checked.
	Set *Set

	// Wake requests another attempt of the same probe, as for a probe.WakingHandler. It is nil for other handlers.
	Wake func()

	// Kept has the connection of the previous attempt, and keeps that of this attempt. The Stepper sets it before each step of an
	// Exchange. If it is nil, the attempt has its own connection.
	Kept *Kept

	exchange exchangeState
}

// Event is why Step is called.
type Event uint8

// Events of an attempt.
const (
	StepBegin Event = iota // the attempt begins
	StepReady              // FD may be ready
	StepLate               // the timeout has passed: set Result, close FD, and return StepDone
	StepStop               // the attempt is cancelled: close FD, and return StepDone
)

// Progress says how an attempt continues.
type Progress uint8

// How an attempt continues. The engine waits for FD edge-triggered: before Step returns StepWait, a system call on FD must have
// returned EAGAIN.
const (
	StepDone  Progress = iota // the attempt is done: Result is set, and FD is closed or among the Spares
	StepWait                  // call Step again when FD becomes ready or, the first time, if it already is
	StepBlock                 // call Probe instead: FD is closed
	StepKeep                  // only from Protocol.Judge: like StepDone, but the connection may be kept for another attempt
)

// Spares are non-blocking TCP sockets for IPv4, neither connected nor bound, that attempts use instead of opening and closing their
// own, which is a quarter of the cost of a short attempt. The zero value is empty. It is not safe for concurrent use. Its owner
// closes the remaining sockets.
//
// A socket from Spares may already be in a Set.
type Spares struct{ free []int }

// maxSpares is the maximum number of sockets that are kept. More are only returned if many attempts begin and end together.
const maxSpares = 64

// Put adds a socket, and reports whether it was kept. If not, the caller must close it.
func (s *Spares) Put(fd int) bool {
	if s == nil || len(s.free) == maxSpares {
		return false
	}
	s.free = append(s.free, fd)
	return true
}

// Take removes and returns the socket that was added last; ok is false if there is none.
func (s *Spares) Take() (fd int, ok bool) {
	if s == nil || len(s.free) == 0 {
		return 0, false
	}
	last := len(s.free) - 1
	fd, s.free = s.free[last], s.free[:last]
	return fd, true
}
