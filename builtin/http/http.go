// Package httpprobe is the http handler: an attempt succeeds when the target's response
// to a request has an accepted status and, if configured, an expected body.
//
// It sends the request as the kubelet does, with a new connection for each attempt and
// without the proxies of the environment, but verifies certificates by default. A result
// contains a part of the body only if the body or the status caused the failure, and not if
// the response follows a redirect or the attempt serves /probe. Text that looks like a secret
// is removed.
//
// # Files
//
//	config.go      Config and New
//	http.go        handler: attempts by net/http
//	plan.go        a validated configuration: URL and request
//	header.go      the request's headers
//	redirect.go    which redirects are followed
//	status.go      which statuses are accepted
//	judge.go       the result of a response
//	assert.go      assertions about headers and bodies
//	measure.go     numbers measured in the body
//	clock.go       the permitted clock skew of the server
//	decode.go      compressed bodies
//	charset.go     bodies in charsets other than UTF-8
//	json.go        values of a JSON document by their paths
//	attempt.go     the course of one attempt by net/http, and the result of its error
//	malformed.go   descriptions of malformed response heads
//	trace.go       the response in a probe.Trace
//	forward.go     Forward: a round trip for a proxy, and its observation
//	url.go         a handler for another URL
//	transport.go   an http.RoundTripper over the connections of package dial
//	proxy.go       connections through a proxy
//	writefirst.go  a connection that is read from only after the request is sent
//	step.go        attempts without a goroutine: the request and the judgment of the response
//	reuse.go       attempts over a kept connection
//	template.go    the bytes of the request
//	response.go    parsing a response
//	chunks.go      parsing a chunked body
package httpprobe

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// handler makes attempts over HTTP. It is safe for concurrent use by multiple goroutines.
type handler struct {
	plan      *plan
	transport *transport
	client    *http.Client
	template  *requestTemplate // nil if attempts cannot be made in steps
	exchange  *nonblock.Exchange
}

var (
	_ probe.EndpointHandler = (*handler)(nil)
	_ io.Closer             = (*handler)(nil)
)

// Check returns an error if a target lacks a setting that this handler needs. An error is a *probe.FieldError for the field "host",
// "ip_family", "port" or "source_address".
func (h *handler) Check(t probe.Target) error {
	err := h.transport.dialer.Check(t)
	if field, ok := errors.AsType[*probe.FieldError](err); ok && field.Field == "source_address" && h.transport.proxy != nil {
		return nil // the proxy connects to the target
	}
	return err
}

// Endpoint returns the host and the port of the target's server: "10.0.0.7:80".
func (h *handler) Endpoint(t probe.Target) string { return h.transport.dialer.Endpoint(t) }

// Close closes the connections that are kept for ReuseConnection. The handler can still be used. Close returns nil.
func (h *handler) Close() error {
	h.transport.http.CloseIdleConnections()
	return nil
}

// Probe makes one attempt.
func (h *handler) Probe(ctx context.Context, t probe.Target) probe.Result {
	host, port, err := h.transport.dialer.HostPort(t)
	if err != nil {
		return dial.Result(err)
	}
	return h.transport.dialer.Attempt(dial.InNetwork(ctx, &t), host, port, func(ctx context.Context) probe.Result { return h.probe(ctx, host, port) })
}

// probe makes an attempt at a host.
func (h *handler) probe(ctx context.Context, host string, port uint16) probe.Result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	u := h.plan.url(host, port)
	a := &attempt{ctx: ctx, end: cancel, own: u}
	request, err := h.plan.request(a.begin(), u)
	if err != nil {
		return lacksAuth(err)
	}
	result := h.send(a, request)
	result.Detail = httpauth.Hide(result.Detail, request.Header.Get("Authorization")) // a redirect may repeat the credentials
	return a.result(result)
}

// send sends the request of an attempt, and judges the response.
func (h *handler) send(a *attempt, request *http.Request) probe.Result {
	client := *h.client
	if !h.plan.kubelet { // the kubelet keeps no cookies
		client.Jar = jar{}
	}
	response, err := client.Do(request)
	if err != nil {
		return a.failed(err)
	}
	defer response.Body.Close()
	body := traceBody(a.ctx, response)
	result := a.judged(h.plan.judge(a.ctx, a.end, response))
	body.record(a, response)
	return h.plan.tls.Judge(h.plan.asserts.judgeClock(result, response.Header), a.shown())
}
