package sondecaddy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

const page = "../../docs/gateways/caddy.md"

func TestMain(m *testing.M) { gatewaytest.Main(m) }

// edge is Caddy with a configuration, in front of three servers, with clients.
type edge struct {
	t       *testing.T
	text    string // the Caddyfile
	servers []*gatewaytest.Server
	load    *gatewaytest.Load
}

// documented starts Caddy with the Caddyfile of docs/gateways that contains a text. Only
// addresses are others. Further replacements are of the text itself.
func documented(t *testing.T, containing string, replace ...string) *edge {
	t.Helper()
	socket := filepath.Join(gatewaytest.Dir(t), "edge.sock")
	e := &edge{t: t, servers: gatewaytest.Servers(t, "web-1", "web-2", "web-3")}
	replace = append(replace, ":8080 {", "http:// {\n\tbind unix/"+socket)
	for i, s := range e.servers {
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
	e.load = gatewaytest.NewKeptLoad(socket)
	t.Cleanup(e.load.Stop)
	return e
}

// reload gives Caddy a configuration, also if it has it already. No client opens its
// connection meanwhile: Caddy loses these.
func (e *edge) reload(text string) {
	e.t.Helper()
	if e.load != nil {
		e.load.Settle(e.t)
	}
	if err := load(text); err != nil {
		e.t.Fatal(err)
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
	e.t.Helper()
	open := e.sources()
	if len(open) != 1 {
		e.t.Fatalf("there are %d sources", len(open))
	}
	return open[0].group().View()
}

// state returns what is known about a server.
func state(v *group.View, s *gatewaytest.Server) group.State {
	for m := range v.Members() {
		if dialOf(m) == s.Address {
			return m.State
		}
	}
	return group.Undecided
}

// await waits until servers are in a state.
func (e *edge) await(want group.State, all ...*gatewaytest.Server) {
	e.t.Helper()
	for _, s := range all {
		testsync.Until(e.t, s.Name+" to be "+want.String(), func() bool { return state(e.view(), s) == want })
	}
}

// whole checks that no request has failed since it was called last, and that there were enough.
func (e *edge) whole(during string) {
	e.t.Helper()
	e.load.Pass(e.t, 2500)
	if served, failed, how := e.load.Take(); failed > 0 {
		e.t.Errorf("%s: %d requests failed: %s; served: %v", during, failed, how, served)
	}
}

// without checks that servers get no requests, and the others do.
func (e *edge) without(down ...*gatewaytest.Server) {
	e.t.Helper()
	e.load.Pass(e.t, 50) // those under way
	_, failedBefore, how := e.load.Take()
	e.load.Pass(e.t, 250)
	served, failed, howThen := e.load.Take()
	for _, s := range down {
		if served[s.Name] > 0 {
			e.t.Errorf("%s got %d requests", s.Name, served[s.Name])
		}
	}
	if len(served) != len(e.servers)-len(down) || failedBefore+failed > 0 {
		e.t.Errorf("%d requests failed: %s%s; served: %v", failedBefore+failed, how, howThen, served)
	}
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
