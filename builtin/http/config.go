package httpprobe

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// TLS is the tls block: how to verify the server, and which client certificate
// to present to it.
type TLS = dial.TLS

// Config is an http block. The zero value of a field means its default.
type Config struct {
	// Method is the request's method, in upper or lower case. Default GET.
	Method string `hcl:"method,optional"`

	// Path is the path with its query, as in a link: "/healthz?full=1". A path that
	// cannot be parsed is escaped. Default "/".
	Path string `hcl:"path,optional"`

	// Port is a number from 1 to 65535 or the name of one of the target's
	// ports. It is required without UnixSocket.
	Port string `hcl:"port,optional"`

	// Host is the IP address or host name to connect to, and of the URL. Default: the
	// target's address; "localhost" with UnixSocket.
	Host string `hcl:"host,optional"`

	// Scheme is http or https, in upper or lower case. Default http.
	Scheme string `hcl:"scheme,optional" oneof:"http https HTTP HTTPS"`

	// Headers are the request's headers. Host replaces the host of the request, not
	// the one to connect to. The defaults of User-Agent and Accept are sonde-probe and
	// */*; an empty value omits them. See also Compatibility.
	Headers map[string][]string `hcl:"headers,optional"`

	// Body is the request's body. Default: none.
	Body string `hcl:"body,optional"`

	// Status are the statuses to accept, single ones ("204") or ranges
	// ("200-399"), from 100 to 599. Default 200-399.
	Status []string `hcl:"status,optional"`

	// BodyContains must be in the body, and BodyRegex (Go's syntax, RE2) must match in
	// it. Only the first probe.MaxDetail bytes are searched. Default: any body.
	BodyContains string `hcl:"body_contains,optional"`
	BodyRegex    string `hcl:"body_regex,optional"`

	// Redirects says which redirects are followed, up to 10 of them: local (those to
	// the same host, with any port and scheme), none, or all. The status of a redirect
	// that is not followed decides; if the range that accepts it starts below 300, the
	// outcome is Warning. Default local.
	Redirects string `hcl:"redirects,optional" oneof:"local none all"`

	// TLS configures https. Default: the server is verified with the system's
	// authorities. HTTP/2 is used if the server offers it.
	TLS *TLS `hcl:"tls,block"`

	// UnixSocket is the path of a socket to connect to instead of a host and a
	// port; @ begins a name in Linux's abstract namespace.
	UnixSocket string `hcl:"unix_socket,optional"`

	// SourceAddress is the IP address of this machine to connect from. Default:
	// the system chooses.
	SourceAddress string `hcl:"source_address,optional"`

	// ReuseConnection keeps the connection for the next attempt. That is cheaper, and
	// does not notice a server that accepts no new connections. Default false: each
	// attempt makes a new connection.
	ReuseConnection bool `hcl:"reuse_connection,optional"`

	// Compatibility with probe.Kubelet gives a body that stalls or breaks off the
	// outcome Unknown instead of Failure, and makes kube-probe/1.36 the default of
	// User-Agent. It is not a field of the block: it comes from the engine or the probe.
	Compatibility probe.Compatibility `hcl:"-"`
}

// New makes a handler. It reads the files of the tls block and opens no
// connection. An error is a *probe.FieldError with the HCL name of the field.
func New(c Config) (*Handler, error) {
	p, err := newPlan(c)
	if err != nil {
		return nil, err
	}
	dialer, err := dial.New(dial.Config{
		Host: c.Host, Port: c.Port, UnixSocket: c.UnixSocket, SourceAddress: c.SourceAddress, ClientFirst: true,
	})
	if err != nil {
		return nil, err
	}
	settings := c.TLS
	if settings == nil && p.ref.Scheme == "https" {
		settings = new(TLS)
	}
	config, err := settings.Load()
	if err != nil {
		return nil, err
	}
	t := newTransport(dialer, config, p, c.ReuseConnection)
	h := &Handler{plan: p, transport: t, client: &http.Client{Transport: t, CheckRedirect: p.redirect}}
	if !t.reuse {
		h.template = p.template()
	}
	h.exchange = &nonblock.Exchange{
		Protocol: protocol{h}, Socket: dialer.SocketOptions(), MaxResponse: maxResponse, ReuseSocket: true,
	}
	return h, nil
}

// check returns an error for fields that exclude each other.
func (c Config) check() error {
	switch {
	case c.TLS != nil && c.Scheme == "":
		return probe.FieldErrorf("scheme", `must be set: "https", since there is a tls block`)
	case c.UnixSocket != "" && c.Redirects == "all":
		return probe.FieldErrorf("redirects", "must be local or none with unix_socket")
	case c.BodyContains+c.BodyRegex != "" && strings.EqualFold(c.Method, "HEAD"):
		return probe.FieldErrorf("method", "must not be HEAD when body_contains or body_regex is set")
	case len(c.BodyContains) > probe.MaxDetail:
		return probe.FieldErrorf("body_contains", "is %d bytes long, but only the first %d bytes of a body are searched", len(c.BodyContains), probe.MaxDetail)
	case c.Compatibility > probe.Kubelet:
		return probe.FieldErrorf("compatibility", "must be none or kubelet")
	}
	return nil
}

func (c Config) scheme() (string, error) {
	scheme := strings.ToLower(cmp.Or(c.Scheme, "http"))
	if scheme != "http" && scheme != "https" {
		return "", probe.FieldErrorf("scheme", "is %q; it must be http or https", c.Scheme)
	}
	return scheme, nil
}

func (c Config) method() (string, error) {
	method := strings.ToUpper(cmp.Or(c.Method, "GET"))
	if !isToken(method) || method == "CONNECT" {
		return "", probe.FieldErrorf("method", "is %q; it must be one such as GET, HEAD or POST", c.Method)
	}
	return method, nil
}
