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

// Forward performs the round trip of a request that a proxy forwards to a target. In addition to the response or the error, it
// returns the observation about the target for Engine.Observe. The observation is Unknown if it says nothing about the target: the
// client has disconnected, its request could not be read, or this machine lacked descriptors, ports or memory.
//
// The transport must limit how long it waits for a connection and for the head of a response. Errors that it wraps must have the
// method Unwrap.
func Forward(transport http.RoundTripper, r *http.Request) (*http.Response, probe.Observation, error) {
	var body *clientBody
	if r.Body != nil && r.Body != http.NoBody {
		body = &clientBody{ReadCloser: r.Body}
		r = r.WithContext(r.Context()) // copy it: a RoundTripper must not modify the request
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

// observedStatus returns the observation about a server, or about a proxy in front of a server that fails.
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

// clientBody is the body of a client's request. It records that the client, not the target, has failed. Since the transport closes
// the body of a failed request, read errors after Close do not count.
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
