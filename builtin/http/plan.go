package httpprobe

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/internal/limits"
	"github.com/sonde-probe/sonde/internal/redact"
	"github.com/sonde-probe/sonde/probe"
)

// plan is a validated configuration: the part of an attempt that does not depend on the target. It is read-only.
type plan struct {
	method     string
	ref        url.URL // without its host
	where      string  // in the text of a failure: " of /healthz"; empty for /
	host       string  // for a unix socket
	hostHeader string  // empty: the host of the URL
	header     http.Header
	private    []string      // headers that are not sent to another server
	auth       httpauth.Auth // set if the credentials are read for each attempt; otherwise they are in header
	body       string
	accept     statuses
	asserts    assertions
	http2      bool      // speak only HTTP/2
	redirects  string    // as in Config
	tls        *dial.TLS // nil if there is no tls block
	kubelet    bool
}

func newPlan(c Config) (*plan, error) {
	if err := cmp.Or(limits.Check(c, "").Err(), c.check()); err != nil {
		return nil, err
	}
	p := &plan{
		host:      cmp.Or(dial.CanonicalHost(c.Host), "localhost"),
		body:      c.Body,
		redirects: c.Redirects,
		tls:       c.TLS,
		kubelet:   c.Compatibility == probe.Kubelet,
		http2:     c.HTTPVersion == http2,
	}
	var noMethod, noStatuses, noAssertions error
	p.method, noMethod = c.method()
	p.accept, noStatuses = parseStatuses(c.Status)
	p.asserts, noAssertions = c.assertions()
	if err := errors.Join(noMethod, p.setHeaders(c.Headers), p.setAuth(c), noStatuses, noAssertions, p.accept.checkBody(c)); err != nil {
		return nil, err
	}
	if p.http2 && p.hasUpgrade() {
		return nil, probe.FieldErrorf("headers", "must not have Connection or Upgrade with http_version = \"2\", which has no such headers")
	}
	p.ref = parsePath(c.Path)
	if path := p.ref.EscapedPath(); path != "/" && !p.kubelet {
		p.where = " of " + redact.Excerpt([]byte(path), maxWhere)
	}
	p.ref.Scheme = strings.ToLower(cmp.Or(c.Scheme, "http"))
	if c.ReuseConnection {
		// The header is not sent. It makes net/http retry on a new connection if the server has closed a kept one, whatever the
		// method.
		setDefault(p.header, "X-Idempotency-Key")
	}
	return p, nil
}

// parsePath parses a path as a link is parsed, without its scheme, host and fragment. Text that is not a link is a path to be
// escaped.
func parsePath(path string) url.URL {
	if path == "*" {
		path = "/*" // a single * is parsed as the whole server, and escaped once it has its slash
	}
	u, err := url.Parse(cmp.Or(path, "/"))
	if err != nil || u.Opaque != "" {
		return url.URL{Path: rooted(path)}
	}
	u.Path = rooted(u.Path)
	if u.RawPath != "" {
		u.RawPath = rooted(u.RawPath)
	}
	u.Host, u.Fragment, u.RawFragment = "", "", ""
	return *u
}

func rooted(path string) string { return "/" + strings.TrimPrefix(path, "/") }

// url returns the URL of the request; port 0 means no port.
func (p *plan) url(host string, port uint16) *url.URL {
	u := p.ref
	switch {
	case port != 0:
		u.Host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	case strings.Contains(p.host, ":"):
		u.Host = "[" + p.host + "]"
	default:
		u.Host = p.host
	}
	return &u
}

// request returns the request of an attempt, or an error if this machine cannot read its credentials.
func (p *plan) request(ctx context.Context, u *url.URL) (*http.Request, error) {
	r := &http.Request{Method: p.method, URL: u, Host: p.hostHeader, Header: p.header}
	switch token, err := p.auth.Header(); {
	case err != nil:
		return nil, err
	case token != "":
		r.Header = p.header.Clone()
		r.Header["Authorization"] = []string{token}
	}
	if p.body != "" {
		r.ContentLength = int64(len(p.body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(p.body)), nil }
		r.Body, _ = r.GetBody()
	}
	return r.WithContext(ctx), nil
}
