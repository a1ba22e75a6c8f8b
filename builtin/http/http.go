// Package httpprobe is the http handler: an attempt succeeds when the target
// answers a request with an accepted status and, where asked, an expected body.
//
// It asks as the kubelet does, with a new connection for each attempt and
// without the proxies of the environment, but verifies certificates unless told
// otherwise. No byte of a body stands in a result: whoever may point a probe
// at something must not be able to read it that way.
package httpprobe

import (
	"context"
	"io"
	"net/http"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Handler makes attempts over HTTP. New makes it. It is safe for use by many
// goroutines at once.
type Handler struct {
	plan   *plan
	wire   *wire
	client *http.Client
	script *script        // nil: attempts cannot be made in steps
	odd    dial.OddPlaces // nor can those at these places
}

var (
	_ probe.Handler = (*Handler)(nil)
	_ io.Closer     = (*Handler)(nil)
)

func newHandler(p *plan, w *wire) *Handler {
	h := &Handler{plan: p, wire: w, client: &http.Client{Transport: w, CheckRedirect: p.redirect}}
	if !w.reuse {
		h.script = p.script()
	}
	return h
}

// Check says what a target lacks for this handler, or nil. An error is a
// *probe.FieldError for the field "host" or "port".
func (h *Handler) Check(t probe.Target) error { return h.wire.dialer.Check(t) }

// Close closes the connections that ReuseConnection has kept. The handler can be
// used on. It returns nil.
func (h *Handler) Close() error {
	h.wire.transport.CloseIdleConnections()
	return nil
}

// Probe makes one attempt.
func (h *Handler) Probe(ctx context.Context, t probe.Target) probe.Result {
	host, port, err := h.wire.dialer.HostPort(t)
	if err != nil {
		return dial.Result(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	u := h.plan.url(host, port)
	a := &attempt{ctx: ctx, host: u.Hostname()}
	response, err := h.client.Do(h.plan.request(a.begin(), u))
	if err != nil {
		return a.result(a.failed(err))
	}
	defer response.Body.Close()
	return a.result(h.plan.judge(ctx, response))
}
