package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

// maxTries is how often an attempt is tried that could not be made
// (maxProbeRetries in k8s.io/kubernetes/pkg/kubelet/prober).
const maxTries = 3

// Once makes one attempt at p exactly as a running Engine does: with the rule's
// timeout for each try, up to three tries in a row while the outcome is unknown,
// and with a panic turned into an unknown outcome. It returns when the handler
// has returned. A probe.StatefulHandler makes the attempt without state from
// earlier ones.
func Once(ctx context.Context, p probe.Probe) probe.Result {
	p.Rule = p.Rule.WithDefaults()
	if h, ok := p.Handler.(probe.StatefulHandler); ok {
		p.Handler = h.ForProbe()
		if c, ok := p.Handler.(io.Closer); ok {
			defer c.Close()
		}
	}
	res, _ := attempt(ctx, p, func() {})
	return res
}

// attempt tries p, and reports how many tries panicked.
func attempt(ctx context.Context, p probe.Probe, wake func()) (res probe.Result, panics int) {
	start := time.Now()
	for n := uint8(1); n <= maxTries; n++ {
		panicked := false
		res, panicked = try(ctx, p, wake)
		res.Tries = n
		if panicked {
			panics++
		}
		if res.Outcome != probe.Unknown || ctx.Err() != nil {
			break
		}
	}
	res.Took = time.Since(start)
	res.Detail = probe.CleanText(res.Detail, probe.MaxDetail)
	return res, panics
}

// try calls the handler once. A good answer that comes after the deadline is a
// failure: the handler should have said so itself.
func try(ctx context.Context, p probe.Probe, wake func()) (res probe.Result, panicked bool) {
	ctx, cancel := context.WithTimeout(ctx, p.Rule.Timeout)
	defer cancel()
	defer func() {
		if r := recover(); r != nil {
			res, panicked = probe.Broken(probe.ReasonPanic, "handler panicked: %v\n%s", r, debug.Stack()), true
		}
	}()
	if h, ok := p.Handler.(probe.WakingHandler); ok {
		res = h.ProbeWaking(ctx, p.Target, wake)
	} else {
		res = p.Handler.Probe(ctx, p.Target)
	}
	good := res.Outcome == probe.Success || res.Outcome == probe.Warning
	if good && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return tooLate(p.Rule.Timeout, res.Detail), false
	}
	if res.Outcome > probe.Failure {
		return probe.Broken(probe.ReasonPanic, "handler returned the outcome %s", fmt.Sprint(res.Outcome)), false
	}
	return res, false
}

func tooLate(timeout time.Duration, detail string) probe.Result {
	return probe.Fail(probe.ReasonTimeout, "answered after the timeout of %v: %s", timeout, detail)
}

// work makes attempts for as long as others wait for a worker.
func (e *Engine) work(f *flight) {
	for f != nil {
		res, panics := attempt(f.ctx, f.probe, f.wake)
		f.cancel()
		f = e.land(f, &res, panics)
	}
}
