package sandbox

import (
	"errors"
	"fmt"

	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// usage is what a call has used of its limits, beside its fuel.
type usage struct {
	hostCalls, dials  int
	bytesIn, bytesOut int64
	logged            int // bytes, with recordSize for each record
}

// Panics that end a guest which goes on after a limit was reached, or after it was stopped.
var (
	errLimit   = errors.New("limit reached")
	errStopped = fmt.Errorf("stopped: it still ran %v after the deadline", abi.Grace)
)

// reachLimit records that a limit was reached.
func (c *call) reachLimit(limit string, errno abi.Errno) abi.Errno {
	c.limit = limit
	return c.failf(errno, "limit %s was reached", limit)
}

// count counts a host call, and stops the guest after the last one that is allowed.
func (c *call) count() {
	c.stopIfDue()
	if c.hostCalls++; c.hostCalls > c.sandbox.config.Limits.HostCalls {
		c.reachLimit("host_calls", abi.ENOSPC)
		panic(errLimit)
	}
	c.charge(unitsCall)
}

// stopIfDue ends a guest that was stopped.
func (c *call) stopIfDue() {
	if isClosed(c.stopped) {
		panic(errStopped)
	}
}
