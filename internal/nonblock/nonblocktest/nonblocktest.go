// Package nonblocktest makes the non-blocking attempts of handlers as the engine does, for
// tests of the built-in handlers.
package nonblocktest

import (
	"context"
	"regexp"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// Probe makes an attempt in steps, and by h.Probe if the steps return StepBlock. It reports
// whether the steps returned the result.
func Probe(ctx context.Context, h nonblock.Stepper, t probe.Target) (r probe.Result, stepped bool) {
	if ctx.Err() == nil {
		if r, ok := steps(ctx, h, t); ok {
			return r, true
		}
	}
	return h.Probe(ctx, t), false
}

// Normalize returns a result without what differs between equal attempts: the length of
// each timing that there is, and the local port.
func Normalize(r probe.Result) probe.Result {
	for _, timing := range []*time.Duration{&r.Timings.Resolve, &r.Timings.Connect, &r.Timings.TLS, &r.Timings.FirstByte} {
		if *timing > 0 {
			*timing = 1
		}
	}
	r.Detail = localPort.ReplaceAllString(r.Detail, ":port->")
	return r
}

// localPort is the port before the arrow between both addresses in an error of package net.
var localPort = regexp.MustCompile(`:\d+->`)
