//go:build !linux

package nonblocktest

import (
	"context"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// steps makes no attempt: on this system there is no engine that would.
func steps(context.Context, nonblock.Stepper, probe.Target) (probe.Result, bool) {
	return probe.Result{}, false
}
