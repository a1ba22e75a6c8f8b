package dial

import (
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// An attempt's State has its phase in the lowest bits, then whether its socket may be
// used again, and above them how many bytes are sent, or how many pieces have come.
const (
	dialling = iota
	sending
	receiving

	phaseMask  = 3
	again      = 1 << 2
	countShift = 3
	counted    = 1 << countShift
)

// keptRoom bounds the Buffers that are kept for other attempts, in bytes: there may
// be thousands.
const keptRoom = 4 << 10

// Dialling reports whether the connection of an attempt does not stand yet.
func Dialling(a *nonblock.Attempt) bool { return a.State&phaseMask == dialling }

// Receiving reports whether everything is sent, and an answer is waited for.
func Receiving(a *nonblock.Attempt) bool { return a.State&phaseMask == receiving }

// enter begins a phase, with nothing counted.
func enter(a *nonblock.Attempt, phase int) { a.State = a.State&again | phase }

// Done ends an attempt that has begun, with a result. It adds the timings.
func (d *Dialer) Done(a *nonblock.Attempt, r probe.Result) nonblock.Progress {
	r.Timings = a.Result.Timings
	if Dialling(a) {
		since(a.Since, &r.Timings.Connect)
	}
	a.Result = r
	if cap(a.Buffer) > keptRoom {
		a.Buffer = nil
	}
	d.hangUp(a)
	return nonblock.StepDone
}

// Leave ends an attempt that has begun and cannot be made in steps.
func (d *Dialer) Leave(a *nonblock.Attempt) nonblock.Progress {
	d.hangUp(a)
	return nonblock.StepBlock
}
