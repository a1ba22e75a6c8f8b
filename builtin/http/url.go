package httpprobe

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// newHandler returns a handler for a plan, with the transport and the client of another handler.
func newHandler(p *plan, of handler) *handler {
	h := &handler{plan: p, transport: of.transport, client: of.client}
	if h.transport.proxy == nil {
		h.template = p.template(h.transport.reuse)
	}
	h.exchange = &nonblock.Exchange{
		Protocol: protocol{h}, Socket: h.transport.dialer.SocketOptions(), MaxResponse: maxResponse, ReuseSocket: true,
	}
	return h
}

// plainHeader matches headers without secrets.
var plainHeader = regexp.MustCompile(`^(Accept-.*|Cache-Control|Connection|Content-.*|Origin|Range|Sec-.*|Te|Upgrade.*)$`)

// CredentialScheme returns the scheme of the requests if they have credentials, in the URL or in headers, which must be sent only
// to the intended server; otherwise "".
func (h *handler) CredentialScheme() string {
	isSecret := func(name string) bool { return !plainHeader.MatchString(name) }
	if h.plan.ref.User == nil && !slices.ContainsFunc(h.plan.private, isSecret) {
		return ""
	}
	return h.plan.ref.Scheme
}

// ForURL returns a handler with the same configuration for another URL, and that URL. Its scheme, user, path and query are those of
// u if u has them, and otherwise those of the configuration. The host and port to connect to stay as configured; if u has no port,
// neither has the Host header.
func (h *handler) ForURL(u *url.URL) (probe.Handler, *url.URL) {
	p := *h.plan
	p.ref.Scheme = cmp.Or(u.Scheme, p.ref.Scheme)
	if u.Path != "" || u.RawQuery != "" {
		p.ref.Path, p.ref.RawPath, p.ref.RawQuery = cmp.Or(u.Path, "/"), u.RawPath, u.RawQuery
	}
	if u.User != nil {
		p.ref.User = u.User
	}
	if p.hostHeader == "" && u.Port() == "" {
		p.hostHeader = u.Host
	}
	full := p.ref
	full.Host = u.Host
	return newHandler(&p, *h), &full
}
