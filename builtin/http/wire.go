package httpprobe

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Bounds on what a connection may take.
const (
	maxHead     = 64 << 10         // of a response's head, in bytes
	maxIdle     = 16               // connections kept for the next attempts of one handler
	idleTimeout = 90 * time.Second // how long one is kept; longer than most periods
)

// wire is an http.RoundTripper over the connections of package dial. It needs an
// attempt in the request's context.
type wire struct {
	dialer    *dial.Dialer
	own       *tls.Config // for the host that the probe is for
	foreign   *tls.Config // for the host of a redirect: it is not shown our certificate
	transport *http.Transport
	reuse     bool
}

func newWire(dialer *dial.Dialer, config *tls.Config, p *plan, reuse bool) *wire {
	config.NextProtos = []string{"h2", "http/1.1"}
	if p.header.Get("Upgrade") != "" || p.header.Get("Connection") != "" {
		config.NextProtos = []string{"http/1.1"} // HTTP/2 has no such headers
	}
	w := &wire{dialer: dialer, own: config, foreign: config.Clone(), reuse: reuse}
	w.foreign.ServerName, w.foreign.Certificates = "", nil
	w.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.dial(ctx, addr, false)
		},
		DialTLSContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return w.dial(ctx, addr, true)
		},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		DisableKeepAlives:      !reuse,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHead,
	}
	return w
}

// RoundTrip makes one request and tells the attempt how it went.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	a := attemptOf(r.Context())
	a.ask()
	send := w.sendAlone
	if w.reuse {
		send = w.transport.RoundTrip
	}
	response, err := send(r)
	if err == nil {
		a.got(response.StatusCode)
	}
	return response, err
}

// sendAlone makes a connection for one request only, which ends with the
// response's body.
func (w *wire) sendAlone(r *http.Request) (*http.Response, error) {
	conn, err := w.transport.NewClientConn(r.Context(), r.URL.Scheme, address(r))
	if err != nil {
		return nil, err
	}
	response, err := conn.RoundTrip(r)
	if err != nil {
		conn.Close()
		return nil, err
	}
	response.Body = lastBody{response.Body, conn}
	return response, nil
}

func address(r *http.Request) string { return net.JoinHostPort(r.URL.Hostname(), r.URL.Port()) }

// lastBody closes its connection too.
type lastBody struct {
	io.ReadCloser
	conn *http.ClientConn
}

func (b lastBody) Close() error {
	b.ReadCloser.Close()
	return b.conn.Close()
}

// dial makes the connection that an attempt needs. It ends when the attempt
// does, unlike what http.Transport asks for: a connection that comes too late
// would be kept for later.
func (w *wire) dial(ctx context.Context, addr string, secure bool) (net.Conn, error) {
	a := attemptOf(ctx)
	dialled := a.dial()
	var took probe.Timings
	conn, err := w.open(a.ctx, addr, secure, a.host, &took)
	dialled(took, conn, err)
	if err != nil {
		return nil, err
	}
	return gated(conn), nil
}

func (w *wire) open(ctx context.Context, addr string, secure bool, own string, took *probe.Timings) (net.Conn, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	conn, err := w.dialer.Open(ctx, host, uint16(port), took)
	if err != nil || !secure {
		return conn, err
	}
	config := w.own
	if !strings.EqualFold(host, own) {
		config = w.foreign
	}
	return dial.Handshake(ctx, conn, config, host, took)
}
