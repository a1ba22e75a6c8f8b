package httpprobe

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/probe"
)

// TLS is the tls block: how to verify the server, and which client certificate
// to present to it.
type TLS = dial.TLS

// KeepAlive is the keepalive block: the packets that keep a connection alive.
type KeepAlive = dial.KeepAlive

// Basic is the basic_auth block.
type Basic = httpauth.Basic

// Config is an http block. The zero value of a field means its default.
type Config struct {
	Method          string              `hcl:"method,optional" doc:"method of the request, in upper or lower case. One other than GET, HEAD and OPTIONS costs more: see Cost above" default:"GET"`
	Path            string              `hcl:"path,optional" doc:"path with its query, as in a link. A path that cannot be parsed is escaped" default:"/"`
	Port            string              `hcl:"port,optional" doc:"a number from 1 to 65535, or the name of a port of the target; required without unix_socket" default:"none"`
	Host            string              `hcl:"host,optional" doc:"IP address or host name to connect to, and of the URL. A name costs more than an address: see Cost above" default:"the address of the target; localhost with unix_socket"`
	Scheme          string              `hcl:"scheme,optional" oneof:"http https HTTP HTTPS" doc:"http or https; required with tls. Https costs more: see Cost above" default:"http"`
	Headers         map[string][]string `hcl:"headers,optional" doc:"headers of the request; a value is a text or a list of texts. Host replaces the host of the request, not the one to connect to. The defaults of User-Agent and Accept are sonde-probe and */*; an empty text omits them" default:"none"`
	Body            string              `hcl:"body,optional" doc:"body of the request. An attempt costs more then: see Cost above" default:"none"`
	Status          []string            `hcl:"status,optional" doc:"statuses to accept: single ones (\"204\") or ranges (\"200-399\"), from 100 to 599" default:"200-399"`
	BodyContains    string              `hcl:"body_contains,optional" doc:"text that must be in the body" default:"any body"`
	BodyNotContains string              `hcl:"body_not_contains,optional" doc:"text that must not be in the body" default:"any body"`
	BodyRegex       string              `hcl:"body_regex,optional" doc:"regular expression (syntax of Go, RE2) that must match in the body" default:"any body"`
	BodyNotRegex    string              `hcl:"body_not_regex,optional" doc:"regular expression that must not match in the body" default:"any body"`
	JSONEquals      map[string]string   `hcl:"json_equals,optional" doc:"what values of the body, a JSON document, must be, by their paths: { \"status\" = \"ok\", \"checks[*].up\" = \"true\" }. Each path must lead to a value; with [*], all elements must have one, and all be as said. A number of the document is compared as a number, a text as a text: 1.0 equals \"1\", and the text \"007\" does not equal \"7\"" default:"any body"`
	JSONRegex       map[string]string   `hcl:"json_regex,optional" doc:"regular expressions that must match values of the body, a JSON document, by their paths" default:"any body"`
	JSONMin         map[string]string   `hcl:"json_min,optional" doc:"what values of the body, a JSON document, must be at least, by their paths. A value must be a number" default:"any body"`
	JSONMax         map[string]string   `hcl:"json_max,optional" doc:"what values of the body, a JSON document, must be at most, by their paths: { \"replication.lag_seconds\" = 10 }. A value must be a number" default:"any body"`
	Measure         map[string]string   `hcl:"measure,optional" doc:"numbers to measure in the body, a JSON document, by their names: paths such as { lag = \"replication.lag_seconds\" }, for warn_on_rise of the probe and for /probe. A path that leads to no number measures nothing. An attempt costs more then: see Cost above" default:"none"`
	MaxBody         int64               `hcl:"max_body,optional,nonzero,bytes" doc:"how much of the body is read and checked. Of one that is compressed by gzip or deflate, as its Content-Encoding says, that is what it is decoded; another one is unknown (http.body) if something is asserted of it. If it is longer, and what is asserted of it depends on the rest, the attempt is unknown (http.body). Some values cost more: see Cost above" default:"1MiB if something is asserted of the body, otherwise 10KiB" min:"1KiB" max:"1MiB"`
	HeaderEquals    map[string]string   `hcl:"header_equals,optional" doc:"what headers of the response must be: { Content-Type = \"text/plain\" }. If there are several of a name, one must be. An attempt costs more then: see Cost above" default:"any headers"`
	HeaderRegex     map[string]string   `hcl:"header_regex,optional" doc:"regular expressions that must match headers of the response, one of several of a name. An attempt costs more then: see Cost above" default:"any headers"`
	HeaderNotRegex  map[string]string   `hcl:"header_not_regex,optional" doc:"regular expressions that must not match headers of the response, none of several of a name. An attempt costs more then: see Cost above" default:"any headers"`
	HeaderAbsent    []string            `hcl:"header_absent,optional" doc:"headers that the response must not have. An attempt costs more then: see Cost above" default:"any headers"`
	MaxClockSkew    time.Duration       `hcl:"max_clock_skew,optional,nonzero" doc:"how far the clock of the server may be from the clock of this machine, by the header Date of the response (with Age, of a cache). Of an attempt that succeeds, more is a warning (http.clock_skew), and so is no Date. For an hour after the clock of this machine was set, its time before counts, too. An attempt costs more then: see Cost above" default:"any" min:"1s" max:"8784h"`
	Redirects       string              `hcl:"redirects,optional" oneof:"local none all" doc:"which redirects are followed, up to 10: local (to the same host, with any port and scheme), none, or all. The name in a header Host is that of the same server if the scheme is the same, too: such a redirect goes to the target, whatever the name leads to. Only the same server, with the same scheme, host and port, gets headers other than User-Agent and Accept, and the client certificate; a body is sent again to the same host only, and not from https to http. Within an attempt a server gets back the cookies that it has set. The status of a redirect that is not followed decides; if the range that accepts it starts below 300, the outcome is a warning" default:"local"`
	TLS             *TLS                `hcl:"tls,block" doc:"how to verify the server of https, and which client certificate to present"`
	HTTPVersion     string              `hcl:"http_version,optional" oneof:"1.1 2" doc:"version of HTTP to speak. 2 with the scheme http is HTTP/2 without TLS and without an upgrade (h2c, prior knowledge); with https it is all that is offered to the server, as is 1.1. An attempt costs more then: see Cost above" default:"1.1 with http; with https 2 if the server offers it, else 1.1"`
	UnixSocket      string              `hcl:"unix_socket,optional,socket" doc:"path of a socket to connect to instead of a host and a port; @ begins a name in the abstract namespace of Linux. An attempt costs more then: see Cost above" default:"none"`
	SourceAddress   string              `hcl:"source_address,optional" doc:"IP address of this machine to connect from" default:"the system chooses"`
	IPFamily        string              `hcl:"ip_family,optional" oneof:"any 4 6 prefer_4 prefer_6" doc:"which IP addresses of a name are used: only IPv4 or only IPv6, or those first; without another address the attempt fails" default:"any"`
	Addresses       string              `hcl:"addresses,optional" oneof:"any some all" doc:"what a name with several addresses takes: any of them, tried in order until one accepts a connection, or an attempt at all of them, at most eight, which share nine tenths of the timeout. With all the worst one decides. With some the target passes if one does, and an address that fails is a warning. The detail shows each" default:"any"`
	Proxy           *Proxy              `hcl:"proxy,block" doc:"connects through a proxy, which looks names up. A failure of the proxy itself makes the attempt unknown, with the reason http.proxy; one of the target that the proxy reports is a failure, and so is no response in time: the proxy waits for the target. Proxies of the environment are not used. An attempt costs more then: see Cost above"`
	BasicAuth       *Basic              `hcl:"basic_auth,block" doc:"authenticates with a name and a password. Only the same server gets them after a redirect, as other headers"`
	BearerTokenFile string              `hcl:"bearer_token_file,optional,path" doc:"file with a token to authenticate with, which is read in each attempt; white space around it does not count. The attempt is unknown while the file cannot be read (http.auth). Only the same server gets the token after a redirect, as other headers. Not with basic_auth. An attempt costs more then: see Cost above" default:"none"`
	ReuseConnection bool                `hcl:"reuse_connection,optional" doc:"keeps the connection for the next attempt: half of the cost of a new one, or less. It does not notice a server that accepts no new connections: see fresh_every. A connection that the server has closed meanwhile is no failure: the attempt opens a new one. Unless a worker makes the attempts (see Cost above), it is made at once if more than one attempt had used the connection. Each probe keeps a connection of its own, and so a descriptor" default:"false"`
	KeepAlive       *KeepAlive          `hcl:"keepalive,block" doc:"settings of the TCP keepalive packets over the connection of reuse_connection, which keep a firewall from forgetting it. Without the block none are sent"`
	FreshEvery      int                 `hcl:"fresh_every,optional" doc:"with reuse_connection, how many attempts use a connection. The next one opens a new one, and so notices a server that accepts none. 0: any number" default:"0" min:"2" max:"1000000"`

	// Compatibility with probe.Kubelet makes the outcome of a body that stalls or breaks off Unknown instead of Failure, and makes
	// kube-probe/1.36 the default User-Agent. It is not a field of the block: it comes from the engine or the probe.
	Compatibility probe.Compatibility `hcl:"-"`
}

// New creates a handler. It reads the files of the tls block and opens no connection. Errors are *probe.FieldErrors with the HCL
// names of the fields.
func New(c Config) (probe.Handler, error) {
	p, err := newPlan(c)
	if err != nil {
		return nil, err
	}
	dialer, noDialer := dial.New(dial.Config{
		Host: c.Host, Port: c.Port, UnixSocket: c.UnixSocket, SourceAddress: c.SourceAddress, IPFamily: c.IPFamily, Addresses: c.Addresses, ClientFirst: true,
		KeepAlive: c.KeepAlive,
	})
	settings := c.TLS
	if settings == nil && p.ref.Scheme == "https" {
		settings = new(TLS)
	}
	config, noTLS := settings.Load()
	via, noProxy := c.Proxy.load()
	if err := errors.Join(noDialer, noTLS, noProxy); err != nil {
		return nil, err
	}
	if via != nil {
		if err := dialer.CheckHost(via.host); err != nil {
			return nil, err
		}
	}
	t := newTransport(dialer, config, p, via, c)
	h := newHandler(p, handler{transport: t, client: &http.Client{Transport: t, CheckRedirect: p.redirect}})
	if !c.ReuseConnection {
		return h, nil
	}
	h.exchange.FreshEvery = c.FreshEvery
	return &reusing{handler: h}, nil
}

// check returns an error for fields that exclude each other.
func (c Config) check() error {
	switch {
	case c.TLS != nil && c.Scheme == "":
		return probe.FieldErrorf("scheme", `must be set: "https", since there is a tls block`)
	case c.HTTPVersion == http2 && c.Proxy != nil && !strings.EqualFold(c.Scheme, "https"):
		return probe.FieldErrorf("http_version", "must be 1.1 with a proxy block and without https: the proxy reads such requests")
	case c.UnixSocket != "" && c.Redirects == "all":
		return probe.FieldErrorf("redirects", "must be local or none with unix_socket")
	case c.Compatibility > probe.Kubelet:
		return probe.FieldErrorf("compatibility", "must be none or kubelet")
	case c.Proxy != nil && c.UnixSocket != "":
		return probe.FieldErrorf("unix_socket", "cannot be combined with a proxy block")
	case c.Proxy != nil && c.IPFamily != "":
		return probe.FieldErrorf("ip_family", "cannot be combined with a proxy block, since the proxy looks names up")
	case c.Proxy != nil && c.Addresses != "":
		return probe.FieldErrorf("addresses", "cannot be combined with a proxy block, since the proxy looks names up")
	case dial.IsEach(c.Addresses) && c.ReuseConnection:
		return probe.FieldErrorf("addresses", "must be any with reuse_connection, since a kept connection is to one address")
	case c.KeepAlive != nil && !c.ReuseConnection:
		return probe.FieldErrorf("keepalive", "needs reuse_connection = true: without it each attempt closes its connection")
	case c.KeepAlive != nil && c.UnixSocket != "":
		return probe.FieldErrorf("keepalive", "cannot be combined with unix_socket, which has no TCP")
	case c.FreshEvery != 0 && !c.ReuseConnection:
		return probe.FieldErrorf("fresh_every", "needs reuse_connection = true: without it no connection is used by several attempts")
	case c.ReuseConnection:
		return c.TLS.CheckFresh("reuse_connection")
	}
	return nil
}

// http2 is the value of Config.HTTPVersion for HTTP/2.
const http2 = "2"

func (c Config) method() (string, error) {
	method := strings.ToUpper(cmp.Or(c.Method, "GET"))
	if !httpauth.IsToken(method) || method == "CONNECT" {
		return "", probe.FieldErrorf("method", "is %q: want a method such as GET, HEAD or POST", c.Method)
	}
	return method, nil
}
