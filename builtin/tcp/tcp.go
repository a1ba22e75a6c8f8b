// Package tcpprobe is the tcp handler: an attempt succeeds when the target accepts a
// connection and, if configured, sends the expected response.
//
// Each attempt opens a connection and closes it at once, unless connections are kept (Config.KeepAlive, Config.ReuseConnection).
// The target's operating system accepts connections even if the program hangs: expect a response to notice that.
//
// # Files
//
//	config.go     Config and New
//	tcp.go        handler: attempts by package net
//	step.go       attempts without a goroutine: the request and the judgment of the response
//	reuse.go      attempts that send and expect over a kept connection
//	keptconn.go   attempts that succeed while a kept connection is open
package tcpprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// handler makes attempts over TCP, each with its own connection. It is safe for concurrent use by multiple goroutines.
type handler struct {
	dialer   *dial.Dialer
	tls      *tls.Config // nil: none
	block    *dial.TLS
	request  []byte
	matches  func(response []byte) bool // nil if no response is expected
	slow     bool                       // matches is slower than a search for bytes
	exchange *nonblock.Exchange
}

// Check returns an error if a target lacks a setting that this handler needs. An error is a *probe.FieldError for the field "host"
// or "port".
func (h *handler) Check(t probe.Target) error { return h.dialer.Check(t) }

// KernelAnswers reports whether an attempt succeeds even if the program at the port hangs, because the kernel of its machine
// accepts connections for it.
func (h *handler) KernelAnswers() bool { return h.matches == nil && h.tls == nil }

// Endpoint returns the host and the port that attempts connect to: "10.0.0.7:80".
func (h *handler) Endpoint(t probe.Target) string { return h.dialer.Endpoint(t) }

// Probe makes one attempt. The result never contains the response: it could be a secret that the author of the configuration must
// not read.
func (h *handler) Probe(ctx context.Context, t probe.Target) probe.Result {
	host, port, err := h.dialer.HostPort(t)
	if err != nil {
		return dial.Result(err)
	}
	return h.dialer.Attempt(dial.InNetwork(ctx, &t), host, port, func(ctx context.Context) probe.Result {
		var took probe.Timings
		conn, result := h.open(ctx, host, port, &took)
		if conn != nil {
			conn.Close()
		}
		result.Timings = took
		return result
	})
}

// open connects, sends the request and waits for the expected response.
func (h *handler) open(ctx context.Context, host string, port uint16, took *probe.Timings) (net.Conn, probe.Result) {
	conn, err := h.dialer.Open(ctx, host, port, took)
	if err == nil && h.tls != nil {
		conn, err = dial.Handshake(ctx, conn, h.tls, host, took)
	}
	if err != nil {
		return nil, dial.Result(err)
	}
	result := h.converse(ctx, conn, took)
	if result.Outcome == probe.Success && took.Connect+took.TLS+took.FirstByte >= nonblock.MaySendAgain {
		result = nonblock.Lossy(result, nonblock.Retransmissions(conn))
	}
	result = h.block.Judge(result, dial.ValidityOf(conn))
	result.CertificateExpiry = dial.CertificateExpiry(conn)
	result.SetFacts(dial.Facts(conn, host))
	return conn, result
}

func (h *handler) converse(ctx context.Context, conn net.Conn, took *probe.Timings) probe.Result {
	defer dial.Bind(ctx, conn)()
	if len(h.request) > 0 {
		if _, err := conn.Write(h.request); err != nil {
			return dial.Result(dial.Classify(ctx, dial.Transferring, err))
		}
	}
	if h.matches == nil {
		return probe.Succeed("")
	}
	return h.receive(ctx, conn, took)
}

// maxReads is the maximum number of pieces that a response may arrive in. The whole response is searched again after each piece, so
// a peer that sends single bytes could otherwise keep a processor busy.
const maxReads = 1024

func (h *handler) receive(ctx context.Context, conn net.Conn, took *probe.Timings) probe.Result {
	start := time.Now()
	response := make([]byte, 0, probe.MaxDetail)
	for range maxReads {
		n, err := conn.Read(response[len(response):cap(response)])
		if n > 0 && len(response) == 0 {
			took.FirstByte = time.Since(start)
		}
		response = response[:len(response)+n]
		switch {
		case n > 0 && h.matches(response):
			return probe.Succeed("")
		case err != nil:
			return mismatch(ctx, len(response), err)
		case len(response) == cap(response):
			return fullMismatch(len(response))
		}
	}
	return probe.Fail(probe.ReasonTCPExpect, "the response came in more than %d pieces and is not what was expected", maxReads)
}

// fullMismatch returns the result of a response that is longer than the n bytes that are searched.
func fullMismatch(n int) probe.Result {
	return probe.Fail(probe.ReasonTCPExpect, "the first %d bytes of the response are not what was expected", n)
}

// mismatch returns the result of a response that ended with err after n bytes.
func mismatch(ctx context.Context, n int, err error) probe.Result {
	known := dial.Classify(ctx, dial.Transferring, err)
	switch {
	case errors.Is(err, io.EOF) && n > 0:
		return probe.Fail(probe.ReasonTCPExpect, "the response of %d bytes is not what was expected", n)
	case known.Reason == probe.ReasonTCPTimeout && n > 0:
		return probe.Fail(known.Reason, "the expected response did not arrive in time; %d bytes arrived that do not match", n)
	case known.Reason == probe.ReasonTCPTimeout:
		return probe.Fail(known.Reason, "no response came in time")
	}
	return dial.Result(known)
}
