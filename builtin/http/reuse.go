package httpprobe

import (
	"context"
	"net/http"
	"sync"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// reusing makes attempts over a connection that it keeps between them. It belongs to one
// probe: see ForProbe.
type reusing struct {
	*handler // whose transport keeps the connections of Probe
	kept     nonblock.Kept

	mu       sync.Mutex // guards attempts
	attempts int        // by Probe since its connection was new
}

var (
	_ probe.StatefulHandler = (*reusing)(nil)
	_ probe.WakingHandler   = (*reusing)(nil)
	_ nonblock.Stepper      = (*reusing)(nil)
)

// ForProbe returns a handler that keeps connections of its own.
func (r *reusing) ForProbe() probe.Handler {
	own := *r.handler
	own.transport = r.transport.clone()
	own.client = &http.Client{Transport: own.transport, CheckRedirect: r.client.CheckRedirect}
	return &reusing{handler: &own}
}

// Step is handler.Step over the kept connection.
func (r *reusing) Step(a *nonblock.Attempt) nonblock.Progress {
	a.Kept = &r.kept
	return r.handler.Step(a)
}

// Probe makes one attempt.
func (r *reusing) Probe(ctx context.Context, t probe.Target) probe.Result {
	if r.isFresh() {
		r.transport.http.CloseIdleConnections()
	}
	return r.handler.Probe(ctx, t)
}

// isFresh reports whether an attempt must open a new connection, and counts it.
func (r *reusing) isFresh() bool {
	every := r.exchange.FreshEvery
	if every == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts = r.attempts%every + 1
	return r.attempts == 1
}

// ProbeWaking is Probe. The end of a connection that steps keep asks for an attempt; net/http drops one that it
// keeps, and the next attempt opens another.
func (r *reusing) ProbeWaking(ctx context.Context, t probe.Target, _ func()) probe.Result {
	return r.Probe(ctx, t)
}

// Close closes the connections. The handler can still be used.
func (r *reusing) Close() error {
	r.kept.Close()
	return r.handler.Close()
}
