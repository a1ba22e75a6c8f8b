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

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestMain(m *testing.M) { gatewaytest.Main(m) }

// scene is a gateway that runs, its servers, and clients that make requests.
type scene struct {
	t       *testing.T
	gateway *gateway
	servers []*gatewaytest.Server
	load    *gatewaytest.Load
}

func start(t *testing.T) *scene {
	s := &scene{t: t, servers: gatewaytest.Servers(t, "web-1", "web-2", "web-3")}
	var addresses []string
	for _, server := range s.servers {
		addresses = append(addresses, server.Address)
	}
	var err error
	if s.gateway, err = newGateway("/ready", addresses, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(gatewaytest.Dir(t), "edge.sock")
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
	s.load = gatewaytest.NewLoad(socket)
	t.Cleanup(s.load.Stop)
	for _, server := range s.servers {
		s.await(server, group.Ready)
	}
	return s
}

// await waits until a server is in a state.
func (s *scene) await(server *gatewaytest.Server, state group.State) {
	s.t.Helper()
	testsync.Until(s.t, server.Name+" to be "+state.String(), func() bool {
		return s.gateway.servers.View().Member(server.Address).State == state
	})
}

// whole checks that no request has failed so far.
func (s *scene) whole(during string) {
	s.t.Helper()
	if served, failed, how := s.load.Take(); failed > 0 {
		s.t.Errorf("%s: %d requests failed: %s; served: %v", during, failed, how, served)
	}
}

// without checks that a server gets none of some hundred requests.
func (s *scene) without(server *gatewaytest.Server) {
	s.t.Helper()
	s.load.Pass(s.t, 50) // those under way
	s.whole("before")
	s.load.Pass(s.t, 300)
	if served, failed, how := s.load.Take(); served[server.Name] > 0 || len(served) != 2 || failed > 0 {
		s.t.Errorf("without %s: %d requests failed: %s; served: %v", server.Name, failed, how, served)
	}
}

// No client notices that servers are killed, hang or drain.
func TestNoRequestFails(t *testing.T) {
	s := start(t)
	s.load.Pass(t, 500)
	killed, hung, drained := s.servers[0], s.servers[1], s.servers[2]

	killed.Kill()
	s.load.Pass(t, 1000)
	s.await(killed, group.Down)
	s.without(killed)
	killed.Start()
	s.await(killed, group.Ready)
	s.whole("kill")

	hung.Hang()
	s.load.Pass(t, 1000)
	s.await(hung, group.Down)
	s.without(hung)
	hung.Continue()
	s.await(hung, group.Ready)
	s.whole("hang")

	drained.Drain()
	s.load.Pass(t, 1000)
	s.await(drained, group.Down)
	s.without(drained)
	drained.Exit()
	s.load.Pass(t, 300)
	s.whole("drain")
}

// All servers are used while none is ready, and a client learns that none can be reached.
func TestNoServerIsReady(t *testing.T) {
	s := start(t)
	for _, server := range s.servers {
		server.Drain()
	}
	for _, server := range s.servers {
		s.await(server, group.Down)
	}
	s.load.Pass(t, 300)
	s.whole("panic")
	for _, server := range s.servers {
		server.Kill()
	}
	testsync.Until(t, "failures", func() bool {
		_, failed, how := s.load.Take()
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
