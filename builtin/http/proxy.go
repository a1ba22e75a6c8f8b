package httpprobe

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Proxy is the proxy block: connections are made through a proxy, which resolves names. A failure of the proxy itself says nothing
// about the target, so the outcome is Unknown, with the reason http.proxy.
type Proxy struct {
	URL      string `hcl:"url" doc:"address of the proxy with its port: http://proxy:3128, https://proxy:3129 or socks5://proxy:1080. Through the first two a URL with https is reached by CONNECT, and one with http by a request for the whole URL"`
	User     string `hcl:"user,optional" doc:"name to authenticate with" default:"none"`
	Password string `hcl:"password,optional,sensitive" doc:"password to authenticate with; needs user" default:"none"`
	CAFile   string `hcl:"ca_file,optional,path" doc:"PEM file with the authorities to trust for the certificate of a proxy with https" default:"those of the system"`
}

// reasonProxy means that the proxy failed or refused the request (Unknown), or that it could not connect to the target (Failure).
const reasonProxy probe.Reason = "http.proxy"

// maxCredential is the maximum length of User and of Password, in bytes (RFC 1929).
const maxCredential = 255

// proxy is a validated Proxy.
type proxy struct {
	scheme         string
	host           string
	port           uint16
	user, password string
	tls            *tls.Config // for connections to the proxy itself, with the scheme https
}

// load validates the block and reads its file. It returns nil if c is nil. An error is a *probe.FieldError without any credentials.
func (c *Proxy) load() (*proxy, error) {
	if c == nil {
		return nil, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Path+u.RawQuery+u.Fragment != "" {
		return nil, probe.FieldErrorf("proxy.url", "is not valid: write it as http://proxy:3128, without a path")
	}
	p := &proxy{scheme: u.Scheme, host: dial.CanonicalHost(u.Hostname()), user: c.User, password: c.Password}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	problem := dial.HostProblem(p.host)
	switch p.port = uint16(port); {
	case u.User != nil:
		return nil, probe.FieldErrorf("proxy.url", "must not contain credentials: set user and password")
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return nil, probe.FieldErrorf("proxy.url", "has the scheme %q; it must be http, https or socks5", u.Scheme)
	case problem != "":
		return nil, probe.FieldErrorf("proxy.url", "has the host %q%s", p.host, problem)
	case err != nil || port == 0:
		return nil, probe.FieldErrorf("proxy.url", "must have a port from 1 to 65535")
	case c.User == "" && c.Password != "":
		return nil, &probe.FieldError{Field: "proxy.user", Problem: "must be set, since password is", Plain: true}
	case max(len(c.User), len(c.Password)) > maxCredential:
		return nil, &probe.FieldError{Field: "proxy.password", Problem: fmt.Sprintf("and user must have at most %d bytes each", maxCredential), Plain: true}
	case strings.Contains(c.User, ":"):
		return nil, &probe.FieldError{Field: "proxy.user", Problem: "must not contain a colon", Plain: true}
	case c.CAFile != "" && u.Scheme != "https":
		return nil, probe.FieldErrorf("proxy.ca_file", "has no effect without https in proxy.url")
	}
	if u.Scheme == "https" {
		p.tls, err = (&dial.TLS{CAFile: c.CAFile}).Load()
	}
	if field := (*probe.FieldError)(nil); errors.As(err, &field) {
		return nil, probe.FieldErrorf("proxy.ca_file", "%s", field.Problem)
	}
	return p, err
}

// tunnels reports whether the proxy only relays bytes, for a URL with https or with http, instead of reading the requests.
func (p *proxy) tunnels(https bool) bool { return https || p.scheme == "socks5" }

// open opens a connection to a host through the proxy, or to the proxy itself if it reads the requests. Every error is a
// *dial.Error.
func (p *proxy) open(ctx context.Context, d *dial.Dialer, host string, port uint16, https bool, took *probe.Timings) (net.Conn, error) {
	if problem := dial.HostProblem(host); problem != "" { // from a redirect: the configured host was validated
		return nil, &dial.Error{Outcome: probe.Failure, Reason: probe.ReasonDNSFailed, Err: fmt.Errorf("the host is %.80q%s", host, problem)}
	}
	if err := checkAllowed(ctx, host, port); err != nil {
		return nil, err
	}
	// The target was checked above; the proxy was chosen by the author of the configuration.
	chosen := dial.WithAllow(ctx, func(string, netip.AddrPort) error { return nil })
	conn, err := d.Open(chosen, p.host, p.port, took)
	if err == nil && p.tls != nil {
		conn, err = dial.Handshake(ctx, conn, p.tls, p.host, took)
	}
	if err != nil {
		return nil, p.unknown(ctx, err)
	}
	if !p.tunnels(https) {
		return conn, nil
	}
	stop := dial.Bind(ctx, conn)
	err = p.tunnel(ctx, conn, host, port)
	if stop(); err != nil {
		dial.Close(conn)
		return nil, err
	}
	return conn, nil
}

// tunnel asks the proxy to connect to a host. Every error is a *dial.Error.
func (p *proxy) tunnel(ctx context.Context, conn net.Conn, host string, port uint16) error {
	ask := p.connect
	if p.scheme == "socks5" {
		if err := p.authenticate(conn); err != nil { // the proxy does not know the target yet
			return p.unknown(ctx, err)
		}
		ask = p.connectSocks
	}
	err := ask(conn, host, port)
	if err == nil {
		return nil
	}
	if answered, ok := errors.AsType[*dial.Error](err); ok {
		return answered
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // the proxy was asked to connect: the target is silent
		return &dial.Error{Outcome: probe.Failure, Reason: probe.ReasonTCPTimeout, Err: errors.New("the proxy did not connect to the target in time")}
	}
	return p.unknown(ctx, err)
}

// checkAllowed returns an error if the attempt may not connect to a host. The proxy resolves names, so their addresses cannot be
// checked.
func checkAllowed(ctx context.Context, host string, port uint16) error {
	if !dial.IsRestricted(ctx) {
		return nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return &dial.Error{Outcome: probe.Failure, Reason: probe.ReasonNotAllowed, Err: errors.New("the proxy looks " + host + " up, so that its addresses cannot be checked: use an address, or no proxy")}
	}
	_, err = dial.Allowed(ctx, host, []netip.Addr{ip}, port)
	return err
}

// unknown returns the error of an attempt that failed at the proxy.
func (p *proxy) unknown(ctx context.Context, err error) *dial.Error {
	known, ok := errors.AsType[*dial.Error](err)
	if !ok {
		known = dial.Classify(ctx, dial.Transferring, err)
	}
	if known.Outcome == probe.Unknown {
		return known
	}
	return p.answer(probe.Unknown, reasonProxy, known.Error())
}

// answer returns an error with the response of the proxy, or the reason why it has not responded.
func (p *proxy) answer(outcome probe.Outcome, why probe.Reason, text string) *dial.Error {
	at := net.JoinHostPort(p.host, strconv.Itoa(int(p.port)))
	return &dial.Error{Outcome: outcome, Reason: why, Err: fmt.Errorf("proxy %s: %s", at, text)}
}

// connect requests a tunnel by HTTP CONNECT.
func (p *proxy) connect(conn net.Conn, host string, port uint16) error {
	to := net.JoinHostPort(host, strconv.Itoa(int(port)))
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: to}, Host: to, Header: p.header(http.Header{"User-Agent": {userAgent}})}
	if err := request.Write(conn); err != nil {
		return err
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxHead))
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return err
	}
	switch status := response.StatusCode; {
	case 200 <= status && status <= 299 && reader.Buffered() > 0:
		return p.answer(probe.Unknown, reasonProxy, "it sent more than its response to CONNECT")
	case 200 <= status && status <= 299:
		return nil
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return p.answer(probe.Failure, reasonProxy, fmt.Sprintf("it cannot connect to the target: status %d", status))
	default: // such as 403 and 407
		return p.answer(probe.Unknown, reasonProxy, fmt.Sprintf("it refuses to connect to the target: status %d", status))
	}
}

// header adds the proxy's credentials to a header.
func (p *proxy) header(h http.Header) http.Header {
	if p.user != "" {
		h.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(p.user+":"+p.password)))
	}
	return h
}

// request returns a copy of a request in the form that the proxy reads, with the whole URL.
func (p *proxy) request(r *http.Request) *http.Request {
	u := *r.URL
	u.Opaque = "//" + u.Host + u.EscapedPath()
	r = r.WithContext(r.Context())
	r.URL, r.Header = &u, p.header(r.Header.Clone())
	return r
}

// response returns the proxy's response as a response to the original request, or an error if the proxy rejects the credentials.
func (p *proxy) response(r *http.Response, to *http.Request) (*http.Response, error) {
	if r.StatusCode == http.StatusProxyAuthRequired {
		r.Body.Close()
		return nil, p.answer(probe.Unknown, reasonProxy, "it refuses the request: status 407")
	}
	r.Request = to
	return r, nil
}

// unanswered returns the error of a request that the proxy has read but sent no byte of a response to. If a target fails, its proxy
// responds with status 502 or keeps waiting; a proxy that closes the connection has failed itself.
func (p *proxy) unanswered(ctx context.Context, err error) error {
	_, known := errors.AsType[*dial.Error](err)
	if timeout := net.Error(nil); known || ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return p.answer(probe.Unknown, reasonProxy, "it closed the connection without a response")
}

// Constants of SOCKS (RFC 1928 and 1929).
const (
	socksVersion     = 5
	socksNoAuth      = 0
	socksPassword    = 2
	socksAuthVersion = 1
	socksConnect     = 1
	socksIPv4        = 1
	socksName        = 3
	socksIPv6        = 4
)

// authenticate performs the SOCKS greeting and authentication.
func (p *proxy) authenticate(conn net.Conn) error {
	method := byte(socksNoAuth)
	if p.user != "" {
		method = socksPassword
	}
	var answer [2]byte
	if err := exchange(conn, []byte{socksVersion, 1, method}, answer[:]); err != nil {
		return err
	}
	if answer[0] != socksVersion || answer[1] != method {
		return p.answer(probe.Unknown, reasonProxy, "it does not speak SOCKS 5, or wants other authentication")
	}
	if method == socksPassword {
		login := append([]byte{socksAuthVersion, byte(len(p.user))}, p.user...)
		login = append(append(login, byte(len(p.password))), p.password...)
		if err := exchange(conn, login, answer[:]); err != nil {
			return err
		}
		if answer[1] != 0 {
			return p.answer(probe.Unknown, reasonProxy, "it refuses the user or the password")
		}
	}
	return nil
}

// connectSocks requests a tunnel by SOCKS.
func (p *proxy) connectSocks(conn net.Conn, host string, port uint16) error {
	var answer [4]byte
	request := appendSocksHost([]byte{socksVersion, socksConnect, 0}, host)
	if err := exchange(conn, append(request, byte(port>>8), byte(port)), answer[:]); err != nil {
		return err
	}
	if outcome, why, text := socksReply(answer[1]); text != "" {
		return p.answer(outcome, why, text)
	}
	return discardSocksAddress(conn, answer[3])
}

// exchange writes a message and reads a response of known length.
func exchange(conn net.Conn, message, answer []byte) error {
	if _, err := conn.Write(message); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, answer)
	return err
}

func appendSocksHost(b []byte, host string) []byte {
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return append(append(b, socksName, byte(len(host))), host...) // at most dial.MaxHostName bytes
	case ip.Unmap().Is4():
		return append(append(b, socksIPv4), ip.Unmap().AsSlice()...)
	}
	return append(append(b, socksIPv6), ip.AsSlice()...)
}

// socksReply returns the meaning of a reply; text is "" for success.
func socksReply(code byte) (outcome probe.Outcome, why probe.Reason, text string) {
	switch code {
	case 0:
		return probe.Success, "", ""
	case 3, 4, 6:
		return probe.Failure, probe.ReasonTCPUnreachable, "it cannot reach the target"
	case 5:
		return probe.Failure, probe.ReasonTCPRefused, "the target refuses connections"
	}
	return probe.Unknown, reasonProxy, fmt.Sprintf("it refuses to connect to the target: reply %d", code)
}

// discardSocksAddress reads the rest of a reply: an address of the given kind, and a port.
func discardSocksAddress(conn net.Conn, kind byte) error {
	length := map[byte]int{socksIPv4: 4, socksIPv6: 16}[kind]
	if kind == socksName {
		var n [1]byte
		if _, err := io.ReadFull(conn, n[:]); err != nil {
			return err
		}
		length = int(n[0])
	}
	_, err := io.CopyN(io.Discard, conn, int64(length)+2)
	return err
}
