// Package nonblocktest makes attempts of handlers in steps, as the engine does, for
// the tests of the built-in handlers.
package nonblocktest

import (
	"context"
	"regexp"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Probe makes an attempt in steps as far as they go, and by h.Probe from there. It
// reports whether it was made in steps to its end.
func Probe(ctx context.Context, h nonblock.Stepper, t probe.Target) (r probe.Result, stepped bool) {
	if ctx.Err() == nil {
		if r, ok := steps(ctx, h, t); ok {
			return r, true
		}
	}
	return h.Probe(ctx, t), false
}

// Told returns what two results of attempts that found the same have in common:
// not how long each timing is, but which there are, and not this side's port.
func Told(r probe.Result) probe.Result {
	for _, timing := range []*time.Duration{&r.Timings.Resolve, &r.Timings.Connect, &r.Timings.TLS, &r.Timings.FirstByte} {
		if *timing > 0 {
			*timing = 1
		}
	}
	r.Detail = ownPort.ReplaceAllString(r.Detail, ":port->")
	return r
}

// ownPort is the port before the arrow with which package net tells a connection's ends.
var ownPort = regexp.MustCompile(`:\d+->`)
