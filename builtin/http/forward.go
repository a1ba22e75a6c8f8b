package httpprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Forward makes the round trip of a request that a proxy forwards to a target, and returns
// beside the response or the error what they say about the target, for Engine.Observe. It is
// Unknown where they say nothing: the client has gone away, its request could not be read, or
// this machine lacked descriptors, ports or memory.
//
// The transport must limit how long it waits for a connection and for the head of a response.
// Errors that it wraps must have the method Unwrap.
func Forward(transport http.RoundTripper, r *http.Request) (*http.Response, probe.Observation, error) {
	var body *clientBody
	if r.Body != nil && r.Body != http.NoBody {
		body = &clientBody{ReadCloser: r.Body}
		r = r.WithContext(r.Context()) // a copy: a RoundTripper must not change the request
		r.Body = body
	}
	response, err := transport.RoundTrip(r)
	switch {
	case err == nil:
		return response, observedStatus(response.StatusCode), nil
	case body != nil && body.failed.Load():
		return nil, probe.Observation{}, err
	}
	return nil, observedError(r.Context(), err), err
}

// observedStatus is what a response says: of a server, or of a proxy before one that has none.
func observedStatus(status int) probe.Observation {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return probe.Observation{Outcome: probe.Failure, Reason: probe.ReasonHTTPStatus, Detail: fmt.Sprintf("status %d", status)}
	}
	return probe.Observation{Outcome: probe.Success}
}

func observedError(ctx context.Context, err error) probe.Observation {
	stage := dial.Transferring
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		stage = dial.Connecting
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		stage = dial.Resolving
	}
	o := dial.Classify(ctx, stage, err)
	if stage == dial.Transferring && o.Reason == probe.ReasonTCPTimeout {
		o.Reason = probe.ReasonHTTPTimeout
	}
	return probe.Observation{Outcome: o.Outcome, Reason: o.Reason, Detail: o.Error()}
}

// clientBody is the body of a client's request. It notices that the client fails, and not the
// target: the transport closes the body of a request that has failed.
type clientBody struct {
	io.ReadCloser
	failed, closed atomic.Bool
}

func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.failed.Store(true)
	}
	return n, err
}

func (b *clientBody) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}
