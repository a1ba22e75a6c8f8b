package sondecaddy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

const page = "../../docs/gateways/caddy.md"

// The environment of the tests has a proxy at which nothing listens. Go's transports use it for all
// but loopback addresses, of which 0.0.0.0 is none.
func TestMain(m *testing.M) {
	if err := os.Setenv("HTTP_PROXY", "http://127.0.0.1:1"); err != nil {
		panic(err)
	}
	gatewaytest.Main(m)
}

// edge is Caddy with a configuration, in front of three servers, with clients.
type edge struct {
	gatewaytest.Edge
	text string // the Caddyfile
}

// documented starts Caddy with the Caddyfile of docs/gateways that contains a text. Only
// addresses are others. Further replacements are of the text itself.
func documented(t *testing.T, containing string, replace ...string) *edge {
	t.Helper()
	socket := filepath.Join(testsync.SocketDir(t), "edge.sock")
	e := &edge{Edge: gatewaytest.Edge{T: t, Servers: gatewaytest.Servers(t, "web-1", "web-2", "web-3")}}
	e.State = func(s *gatewaytest.Server) probe.GatewayState { return state(e.view(), s) }
	replace = append(replace, ":8080 {", "http:// {\n\tbind unix/"+socket)
	for i, s := range e.Servers {
		replace = append(replace, fmt.Sprintf("10.0.0.%d:80", 7+i), s.Address)
	}
	e.text = "{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n\tstorage file_system " + t.TempDir() + "\n}\n" +
		strings.NewReplacer(replace...).Replace(gatewaytest.CodeBlock(t, page, "caddyfile", containing))
	e.reload(e.text)
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		if open := e.sources(); len(open) > 0 {
			t.Errorf("%d sources are open after the end", len(open))
		}
	})
	testsync.Until(t, "Caddy", gatewaytest.Accepts(socket))
	e.Load = gatewaytest.NewKeptLoad(socket)
	t.Cleanup(e.Load.Stop)
	return e
}

// reload gives Caddy a configuration, also if it has it already. No client opens its
// connection meanwhile: Caddy loses these.
func (e *edge) reload(text string) {
	e.T.Helper()
	if e.Load != nil {
		e.Load.Settle(e.T)
	}
	if err := load(text); err != nil {
		e.T.Fatal(err)
	}
}

func load(text string) error {
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
	if err != nil {
		return fmt.Errorf("%w; %v", err, warnings)
	}
	return caddy.Load(config, true)
}

// sources returns all sources that are open.
func (e *edge) sources() (open []source) {
	sources.Range(func(_, value any) bool {
		if s, ok := value.(source); ok {
			open = append(open, s)
		}
		return true
	})
	return open
}

// view returns what the only source knows.
func (e *edge) view() *group.View {
	e.T.Helper()
	open := e.sources()
	if len(open) != 1 {
		e.T.Fatalf("there are %d sources", len(open))
	}
	return open[0].group().View()
}

// state returns what is known about a server.
func state(v *group.View, s *gatewaytest.Server) probe.GatewayState {
	for m := range v.Members() {
		if dialOf(m) == s.Address {
			return m.State
		}
	}
	return probe.GatewayUndecided
}

// serveAPI serves a handler at an address until stop is called. Another process may have the
// address for a connection: it waits until it is free.
func serveAPI(t *testing.T, address string, h http.Handler) (at string, stop func()) {
	t.Helper()
	var listener net.Listener
	testsync.Until(t, "the address "+address, func() (free bool) {
		var err error
		listener, err = net.Listen("tcp", address)
		return err == nil
	})
	server := &http.Server{Handler: h}
	ctx, cancel := context.WithCancel(context.Background())
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), func() { cancel(); server.Close() }
}
