package sondecaddy

import (
	"errors"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// triedVar is the variable of a request that has where it was tried.
const triedVar = "http.reverse_proxy.upstreams.sonde.tried"

// attempts are where a request was tried in vain.
type attempts struct {
	by    *transport // another handler of the same request may have attempts of its own
	dials []string
}

// transport is Caddy's transport for HTTP, and tells sources what its round trips say about
// servers. A nil transport knows nothing.
type transport struct {
	*reverseproxy.HTTPTransport
	sources []source
}

// wrapTransport makes the transport of a handler, which is being set up, one that tells the
// source. Other transports than that for HTTP stay as they are.
func (u *Upstreams) wrapTransport(ctx caddy.Context, proxy *reverseproxy.Handler) error {
	if proxy.Transport == nil { // as the handler does later
		plain := &reverseproxy.HTTPTransport{}
		if err := plain.Provision(ctx); err != nil {
			return err
		}
		proxy.Transport = plain
	}
	switch t := proxy.Transport.(type) {
	case *transport: // another module of the same handler was here first
		u.transport = t
	case *reverseproxy.HTTPTransport:
		u.transport = &transport{HTTPTransport: t}
		proxy.Transport = u.transport
	default:
		return nil
	}
	u.transport.sources = append(u.transport.sources, u.source)
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, seen, err := httpprobe.Forward(dialling{t.HTTPTransport}, r)
	if to, ok := reverseproxy.GetDialInfo(r.Context()); ok && to.Upstream != nil {
		for _, s := range t.sources {
			s.observe(to.Upstream.Dial, seen)
		}
		if seen.Outcome == probe.Failure {
			caddyhttp.SetVar(r.Context(), triedVar, &attempts{t, append(t.attempts(r), to.Upstream.Dial)})
		}
	}
	return response, err
}

// tried returns at which of some servers a request was tried, and failed; at none of them once
// it was tried at all.
func (t *transport) tried(r *http.Request, dials []string) (tried []string) {
	made := t.attempts(r)
	for _, dial := range dials {
		if slices.Contains(made, dial) {
			tried = append(tried, dial)
		}
	}
	if len(tried) == len(dials) && tried != nil {
		caddyhttp.SetVar(r.Context(), triedVar, nil)
		return nil
	}
	return tried
}

// attempts returns where a request was tried, and failed.
func (t *transport) attempts(r *http.Request) []string {
	if made, ok := caddyhttp.GetVar(r.Context(), triedVar).(*attempts); ok && t != nil && made.by == t {
		return made.dials
	}
	return nil
}

// dialling is Caddy's transport. Its errors of connections have their causes, which Caddy's own
// hide: a descriptor that this machine lacks is not the server's fault.
type dialling struct{ *reverseproxy.HTTPTransport }

// RoundTrip implements http.RoundTripper.
func (d dialling) RoundTrip(r *http.Request) (*http.Response, error) {
	var mu sync.Mutex
	var cause error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			cause = err
		}
	}
	response, err := d.HTTPTransport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		DNSDone:     func(info httptrace.DNSDoneInfo) { note(info.Err) },
		ConnectDone: func(_, _ string, err error) { note(err) },
	})))
	if _, ok := errors.AsType[reverseproxy.DialError](err); ok {
		mu.Lock()
		defer mu.Unlock()
		err = &dialError{err, cause}
	}
	return response, err
}

// dialError is an error of Caddy, with its cause.
type dialError struct {
	error
	cause error
}

func (e *dialError) Unwrap() []error {
	return slices.DeleteFunc([]error{e.error, e.cause}, func(err error) bool { return err == nil })
}
