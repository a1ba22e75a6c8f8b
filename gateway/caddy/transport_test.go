package sondecaddy

import (
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

// forwardTo makes a request with Caddy's transport, and returns what it says.
func forwardTo(t *testing.T, address string) (probe.Observation, error) {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	plain := &reverseproxy.HTTPTransport{}
	if err := plain.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	defer plain.Transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, seen, err := httpprobe.Forward(dialling{plain}, r)
	return seen, err
}

// A connection that fails is an error of which Caddy sees that the request was not sent, and
// the engine why it failed.
func TestErrorsOfConnectionsHaveTheirCauses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := func(seen probe.Observation, err error, outcome probe.Outcome, reason probe.Reason) {
		t.Helper()
		if _, ok := errors.AsType[reverseproxy.DialError](err); !ok || seen.Outcome != outcome || seen.Reason != reason {
			t.Errorf("got %+v, %v, want %v, %s", seen, err, outcome, reason)
		}
	}
	restore := faulttest.NoDescriptors(t)
	seen, err := forwardTo(t, l.Addr().String())
	restore()
	want(seen, err, probe.Unknown, probe.ReasonResources)
	l.Close()
	seen, err = forwardTo(t, l.Addr().String())
	want(seen, err, probe.Failure, probe.ReasonTCPRefused)
}
