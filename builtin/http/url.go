package httpprobe

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// newHandler returns a handler for a plan.
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

// plainHeader matches headers that tell a server nothing it must not know.
var plainHeader = regexp.MustCompile(`^(Accept-.*|Cache-Control|Connection|Content-.*|Origin|Range|Sec-.*|Te|Upgrade.*)$`)

// IsConfidential reports whether requests have credentials: headers that only the server they are meant for may see.
func (h *handler) IsConfidential() bool {
	return slices.ContainsFunc(h.plan.private, func(name string) bool { return !plainHeader.MatchString(name) })
}

// ForURL returns a handler with the same configuration for another URL, and that URL: its
// scheme, user, path and query are u's where u has them, and otherwise those of the
// configuration. The host and the port to connect to are as configured; without a port in u the
// header Host has none.
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
