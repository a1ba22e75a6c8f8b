package httpprobe

import (
	"context"
	"net/http"
	"sync"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// reusing makes attempts over a connection that it keeps between attempts. It belongs to one probe: see ForProbe.
type reusing struct {
	*handler // shared by all probes with this configuration
	kept     nonblock.Kept

	mu       sync.Mutex // guards the fields below
	own      *handler   // makes the attempts of Probe, and its transport keeps their connections; nil before the first one
	attempts int        // made by Probe since the connection was new
}

var (
	_ probe.StatefulHandler = (*reusing)(nil)
	_ probe.WakingHandler   = (*reusing)(nil)
	_ nonblock.Stepper      = (*reusing)(nil)
)

// ForProbe returns a handler that keeps its own connections.
func (r *reusing) ForProbe() probe.Handler { return &reusing{handler: r.handler} }

// Step is handler.Step over the kept connection.
func (r *reusing) Step(a *nonblock.Attempt) nonblock.Progress {
	a.Kept = &r.kept
	return r.handler.Step(a)
}

// Probe makes one attempt.
func (r *reusing) Probe(ctx context.Context, t probe.Target) probe.Result {
	own, fresh := r.next()
	if fresh {
		own.transport.http.CloseIdleConnections()
	}
	return own.Probe(ctx, t)
}

// next returns the handler for an attempt of Probe, and whether the attempt must open a new connection. It counts the attempt.
func (r *reusing) next() (own *handler, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own == nil {
		r.own = r.handler.clone()
	}
	every := r.exchange.FreshEvery
	if every == 0 {
		return r.own, false
	}
	r.attempts = r.attempts%every + 1
	return r.own, r.attempts == 1
}

// ProbeWaking is Probe. The end of a connection that steps keep triggers an attempt anyway; a connection that net/http keeps is
// dropped by net/http, and the next attempt opens another one.
func (r *reusing) ProbeWaking(ctx context.Context, t probe.Target, _ func()) probe.Result {
	return r.Probe(ctx, t)
}

// Close closes the connections. The handler can still be used.
func (r *reusing) Close() error {
	r.kept.Close()
	r.mu.Lock()
	own := r.own
	r.mu.Unlock()
	if own == nil {
		return nil
	}
	return own.Close()
}

// clone returns a handler with the same configuration that keeps its own connections.
func (h *handler) clone() *handler {
	own := *h
	own.transport = h.transport.clone()
	own.client = &http.Client{Transport: own.transport, CheckRedirect: h.client.CheckRedirect}
	return &own
}
