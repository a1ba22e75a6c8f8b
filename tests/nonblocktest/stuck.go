package nonblocktest

import (
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Stuck is a non-blocking handler that blocks the engine's loop, against its contract,
// until Release is closed.
type Stuck struct {
	probe.HandlerFunc
	Release chan struct{}
}

// Step blocks until Release is closed, and then succeeds.
func (s Stuck) Step(a *nonblock.Attempt) nonblock.Progress {
	<-s.Release
	a.Result = probe.Succeed("")
	return nonblock.StepDone
}
