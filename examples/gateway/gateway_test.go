package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

func TestMain(m *testing.M) { gatewaytest.Main(m) }

// scene is a running gateway with its servers, and clients that make requests.
type scene struct {
	gatewaytest.Edge
	gateway *gateway
}

func start(t *testing.T) *scene {
	s := &scene{Edge: gatewaytest.Edge{T: t, Servers: gatewaytest.Servers(t, "web-1", "web-2", "web-3")}}
	var addresses []string
	for _, server := range s.Servers {
		addresses = append(addresses, server.Address)
	}
	var err error
	if s.gateway, err = newGateway("/ready", addresses, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(testsync.SocketDir(t), "edge.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx, s.gateway, listener); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	s.Load = gatewaytest.NewLoad(socket)
	t.Cleanup(s.Load.Stop)
	s.State = func(server *gatewaytest.Server) probe.GatewayState {
		return s.gateway.servers.View().Member(server.Address).State
	}
	s.Await(probe.GatewayReady, s.Servers...)
	return s
}

// No client is affected when servers are killed, hang or drain.
func TestNoRequestFails(t *testing.T) {
	tier.CI(t)
	start(t).LoseServers()
}

// While no server is ready, all are used. A client gets an error if no server can be reached.
func TestNoServerIsReady(t *testing.T) {
	tier.Slow(t)
	s := start(t)
	for _, server := range s.Servers {
		server.Drain()
	}
	s.Await(probe.GatewayDown, s.Servers...)
	s.Whole("panic")
	for _, server := range s.Servers {
		server.Kill()
	}
	testsync.Until(t, "failures", func() bool {
		_, failed, how := s.Load.Take()
		return failed > 0 && strings.HasPrefix(how, "status 502")
	})
}

func TestWhatIsRepeated(t *testing.T) {
	for _, c := range []struct {
		method, body string
		want         bool
	}{{"GET", "", true}, {"DELETE", "", true}, {"POST", "", false}, {"PUT", "x", false}, {"PATCH", "", false}} {
		r, err := http.NewRequest(c.method, "http://gateway/", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if isRepeatable(r) != c.want {
			t.Errorf("%s with the body %q: want %v", c.method, c.body, c.want)
		}
	}
}

func TestWrongServersAreNamed(t *testing.T) {
	for want, addresses := range map[string][]string{
		`server ":80": is not an address, write HOST:PORT`:                   {":80"},
		`server "web": is not an address, write HOST:PORT`:                   {"web"},
		`server "web:http": the port must be a number from 1 to 65535`:       {"web:http"},
		`no servers: name their addresses as arguments, such as 10.0.0.7:80`: nil,
		`server "10.0.0.7:0": the port must be a number from 1 to 65535`:     {"10.0.0.7:0"},
	} {
		if _, err := newGateway("/", addresses, slog.New(slog.DiscardHandler)); err == nil || err.Error() != want {
			t.Errorf("%v: %v\nwant %s", addresses, err, want)
		}
	}
}
