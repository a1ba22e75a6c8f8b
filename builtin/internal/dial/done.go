package dial

import "github.com/sonde-probe/sonde/probe"

// The phases of an attempt in steps are in the lowest bits of its State; how many
// bytes are sent, or how many pieces have come, stands above them.
const (
	dialling = iota
	sending
	receiving

	phaseBits = 2
	phaseMask = 1<<phaseBits - 1
)

// Dialling reports whether the connection of an attempt does not stand yet.
func Dialling(a *probe.Attempt) bool { return a.State == dialling }

// Receiving reports whether everything is sent, and an answer is waited for.
func Receiving(a *probe.Attempt) bool { return a.State&phaseMask == receiving }

// Done ends an attempt that has begun, with a result. It adds the phases.
func Done(a *probe.Attempt, r probe.Result) probe.Progress {
	r.Phases = a.Result.Phases
	if a.State == dialling {
		since(a.Since, &r.Phases.Connect)
	}
	a.Result = r
	hangUp(a)
	return probe.StepDone
}

// Leave ends an attempt that has begun and cannot be made in steps.
func Leave(a *probe.Attempt) probe.Progress {
	hangUp(a)
	return probe.StepBlock
}

func hangUp(a *probe.Attempt) {
	if a.FD >= 0 {
		closeSocket(a.FD)
	}
	a.FD = -1
}
