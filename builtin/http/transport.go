package httpprobe

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Limits of a connection.
const (
	maxHead     = 64 << 10         // of a response's head, in bytes
	maxIdle     = 16               // connections kept for the next attempts of one handler
	idleTimeout = 90 * time.Second // how long one is kept; longer than most periods
)

// transport is an http.RoundTripper over the connections of package dial. The context of each request holds the attempt.
type transport struct {
	dialer  *dial.Dialer
	own     *tls.Config // for the configured host; open drops our certificate for another port or scheme
	foreign *tls.Config // for the hosts of redirects; without our certificate
	http    *http.Transport
	reuse   bool
	http2   bool   // speak only HTTP/2, even without TLS
	proxy   *proxy // nil: none
}

func newTransport(dialer *dial.Dialer, config *tls.Config, p *plan, via *proxy, c Config) *transport {
	config.NextProtos = []string{"h2", "http/1.1"}
	switch {
	case c.HTTPVersion == http2:
		config.NextProtos = []string{"h2"}
	case c.HTTPVersion != "", p.hasUpgrade(): // headers that HTTP/2 does not have
		config.NextProtos = []string{"http/1.1"}
	}
	t := &transport{dialer: dialer, own: config, foreign: config.Clone(), reuse: c.ReuseConnection, proxy: via, http2: c.HTTPVersion == http2}
	t.foreign.ServerName, t.foreign.Certificates = "", nil
	t.http = t.newHTTP()
	return t
}

// clone returns a transport that keeps its own connections.
func (t *transport) clone() *transport {
	own := *t
	own.http = own.newHTTP()
	return &own
}

// newHTTP returns an http.Transport over the connections of t.
func (t *transport) newHTTP() *http.Transport {
	h := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return t.dial(ctx, addr, false)
		},
		DialTLSContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return t.dial(ctx, addr, true)
		},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		DisableKeepAlives:      !t.reuse,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHead,
	}
	if t.http2 {
		h.Protocols = new(http.Protocols)
		h.Protocols.SetHTTP2(true)
		h.Protocols.SetUnencryptedHTTP2(true)
	}
	return h
}

// RoundTrip sends one request and records its course in the attempt.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	a := attemptOf(r.Context())
	a.ask()
	send := t.sendAlone
	if t.reuse && !dial.IsRestricted(r.Context()) {
		send = t.http.RoundTrip
	}
	isRead := t.proxy != nil && !t.proxy.tunnels(r.URL.Scheme == "https") // by the proxy
	sent := r
	if isRead {
		sent = t.proxy.request(r)
	}
	response, err := send(sent)
	switch {
	case isRead && err == nil:
		response, err = t.proxy.response(response, r)
	case isRead && !a.hasResponded():
		err = t.proxy.unanswered(a.ctx, err)
	}
	if err == nil {
		a.got(response)
	}
	return response, err
}

// sendAlone opens a connection for one request. Closing the response's body closes it.
func (t *transport) sendAlone(r *http.Request) (*http.Response, error) {
	conn, err := t.http.NewClientConn(r.Context(), r.URL.Scheme, net.JoinHostPort(r.URL.Hostname(), r.URL.Port()))
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

// lastBody also closes the connection when it is closed.
type lastBody struct {
	io.ReadCloser
	conn *http.ClientConn
}

func (b lastBody) Close() error {
	b.ReadCloser.Close()
	return b.conn.Close()
}

// dial opens a connection for an attempt. It is cancelled when the attempt is done: http.Transport would continue, and keep the
// connection for later.
func (t *transport) dial(ctx context.Context, addr string, secure bool) (net.Conn, error) {
	a := attemptOf(ctx)
	dialled := a.dial()
	var took probe.Timings
	conn, err := t.open(a.ctx, addr, secure, a.own, &took)
	dialled(took, conn, err == nil && (t.http2 || speaksHTTP2(conn)), err)
	if err != nil {
		return nil, err
	}
	if t.proxy == nil {
		a.measure(conn)
	}
	return writeFirst(conn), nil
}

func (t *transport) open(ctx context.Context, addr string, secure bool, own *url.URL, took *probe.Timings) (net.Conn, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	if t.proxy != nil {
		conn, err = t.proxy.open(ctx, t.dialer, host, uint16(port), secure, took)
	} else {
		conn, err = t.dialer.Open(ctx, host, uint16(port), took)
	}
	if err != nil || !secure {
		return conn, err
	}
	config := t.own
	switch ownHost, ownPort := own.Hostname(), portOf(own); {
	case !strings.EqualFold(host, ownHost):
		config = t.foreign
	case own.Scheme != "https" || text != ownPort:
		config = config.Clone()
		config.Certificates = nil
	}
	return dial.Handshake(ctx, conn, config, host, took)
}
