package xds_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/gateway/follow"
	"github.com/sonde-probe/sonde/gateway/xds"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

var rule = group.Rule{Port: "http", DegradedWeight: 0.25}

// grpc-go's client accepts all resources, sends calls by weight, and fails none while members
// become degraded, go down, come back and drain.
func TestClientsOfGRPCFollowAGroup(t *testing.T) {
	b := newBackends(t, "a", "b", "c")
	s := gatewaytest.New(t, rule, b.addresses)
	address, o := serve(s, xds.Config{})
	c := newCalls(t, address, b)
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success, "c": probe.Success})
	c.reach(t, "a", "b", "c")

	s.Say(map[string]probe.Outcome{"c": probe.Warning})
	share := 1.0
	for range 10 { // the first calls may be by the weights of before
		c.take()
		for range 8 {
			c.pass(t, 400)
		}
		by := c.take()
		if share = float64(by["c"]) / float64(by["a"]+by["b"]+by["c"]); math.Abs(share-1./9) < 0.03 {
			break
		}
	}
	if t.Logf("the degraded member has %.1f %% of the calls", 100*share); math.Abs(share-1./9) >= 0.03 {
		t.Error("it should have a ninth: 25 of 225")
	}

	s.Say(map[string]probe.Outcome{"b": probe.Failure})
	c.reach(t, "a", "c")
	verdict := s.Groups.Get("web").View().Member("b").Since
	t.Logf("the last call of the member that is down began %v after the verdict", c.lastOf("b").Sub(verdict))
	s.Say(map[string]probe.Outcome{"b": probe.Success, "c": probe.Success})
	c.reach(t, "a", "b", "c")
	c.drain(t, s)
	c.whole(t)
	if st := o.Gateways.Statuses()[0]; st.Errors != 0 || st.Error != "" || st.Outputs < 5 {
		t.Errorf("the status is %+v", st) // a rejection (NACK) is an error
	}
}

// drain makes a member leave that has a call under way, which goes on.
func (c *calls) drain(t *testing.T, s *gatewaytest.Scene) {
	t.Helper()
	var by peer.Peer
	stream, err := healthv1.NewHealthClient(c.conn).Watch(t.Context(), &healthv1.HealthCheckRequest{}, grpc.Peer(&by))
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	p, _ := peer.FromContext(stream.Context())
	name := c.backends.names[p.Addr.String()]
	s.Leave(name)
	rest := map[string][]string{"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}}[name]
	c.reach(t, rest...)
	c.backends.health[name].SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	if answer, err := stream.Recv(); err != nil || answer.Status != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the call under way at %s got %v, %v", name, answer, err)
	}
}

// The default of xDS is that a client fails calls while 1,024 others are under way.
func TestClientsOfGRPCHaveNoLimitOfCalls(t *testing.T) {
	const calls = 1024 + 100
	b := newBackends(t, "a", "b")
	s := gatewaytest.New(t, rule, b.addresses)
	address, _ := serve(s, xds.Config{})
	c := newCalls(t, address, b)
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Success})
	c.reach(t, "a", "b")
	for n := range calls {
		stream, err := healthv1.NewHealthClient(c.conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv() // and the call goes on
		}
		if err != nil {
			t.Fatalf("with %d calls under way the next one fails: %v", n, err)
		}
	}
	c.whole(t)
}

// Without panic calls fail when all members are down; with it none does.
func TestPanicUsesAllMembers(t *testing.T) {
	b := newBackends(t, "a", "b")
	down := map[string]probe.Outcome{"a": probe.Failure, "b": probe.Failure}
	s := gatewaytest.New(t, group.Rule{Port: "http", Panic: 0.5}, b.addresses)
	address, _ := serve(s, xds.Config{})
	c := newCalls(t, address, b)
	s.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure})
	c.reach(t, "a")
	s.Say(down)
	c.reach(t, "a", "b")
	c.whole(t)

	s = gatewaytest.New(t, group.Rule{Port: "http"}, b.addresses)
	address, _ = serve(s, xds.Config{})
	c = newCalls(t, address, b)
	s.Say(down)
	testsync.Until(t, "failures", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.failed > 0
	})
}

// serveAPI serves the API of a scene at an address until stop is called.
func serveAPI(t *testing.T, s *gatewaytest.Scene, address string) (at string, stop func()) {
	t.Helper()
	server, err := api.New(api.Config{Engine: s.Engine, Groups: s.Groups})
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	testsync.Until(t, "the port", func() bool { l, err = net.Listen("tcp", address); return err == nil })
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ctx, l) })
	stop = func() { cancel(); serving.Wait() }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// No call fails while the Sonde that is followed restarts, and is without knowledge for a while.
func TestNoCallFailsWhileTheFollowedSondeRestarts(t *testing.T) {
	b := newBackends(t, "a", "b")
	first := gatewaytest.New(t, rule, b.addresses)
	first.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure})
	at, stop := serveAPI(t, first, "127.0.0.1:0")
	var log testsync.Buffer
	follower, err := follow.New(follow.Config{
		Client: &api.Client{Base: "http://" + at}, Groups: []string{"web"}, MaxRetry: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, follower)
	gateways := gateway.New(gateway.Config{Groups: follower})
	if err := gateways.Apply(map[string]gateway.Spec{"xds": {Groups: []string{"web"}, New: func() gateway.Output { return xds.New(xds.Config{Listen: "127.0.0.1:0"}) }}}); err != nil {
		t.Fatal(err)
	}
	gatewaytest.Run(t, gateways)
	testsync.Until(t, "the listener", func() bool { return gateways.Statuses()[0].Address != "" })
	c := newCalls(t, gateways.Statuses()[0].Address, b)
	c.reach(t, "a")
	stop()
	first.Stop()
	testsync.Until(t, "an error", func() bool { return strings.Contains(log.String(), "cannot follow group") })
	c.pass(t, 300)
	second := gatewaytest.New(t, rule, b.addresses)
	serveAPI(t, second, at)
	testsync.Until(t, "an answer", func() bool { return strings.Contains(log.String(), "group is followed again") })
	c.take()
	c.pass(t, 300)
	if by := c.take(); by["b"] > 0 {
		t.Errorf("while nothing is known the member that is down has got %d calls", by["b"])
	}
	second.Say(map[string]probe.Outcome{"a": probe.Failure, "b": probe.Success})
	c.reach(t, "b")
	c.whole(t)
}

// No call fails while the server itself restarts, and knows nothing for a while.
func TestNoCallFailsWhileTheServerRestarts(t *testing.T) {
	b := newBackends(t, "a", "b")
	first := gatewaytest.New(t, rule, b.addresses)
	first.Say(map[string]probe.Outcome{"a": probe.Success, "b": probe.Failure})
	run := func(s *gatewaytest.Scene, listen string) (all *gateway.Gateways, stop func()) {
		all = gateway.New(gateway.Config{Groups: s.Groups})
		if err := all.Apply(map[string]gateway.Spec{"xds": {Groups: []string{"web"}, New: func() gateway.Output { return xds.New(xds.Config{Listen: listen}) }}}); err != nil {
			t.Fatal(err)
		}
		stop = gatewaytest.Run(t, all)
		testsync.Until(t, "the listener", func() bool { return all.Statuses()[0].Address != "" })
		return all, stop
	}
	all, stop := run(first, "127.0.0.1:0")
	at := all.Statuses()[0].Address
	c := newCalls(t, at, b)
	c.reach(t, "a")
	stop()
	c.pass(t, 300)
	second := gatewaytest.New(t, rule, b.addresses)
	run(second, at)
	conn := dial(t, at)
	testsync.Until(t, "the server", func() bool {
		_, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		return err == nil
	})
	c.take()
	c.pass(t, 300)
	if by := c.take(); by["b"] > 0 {
		t.Errorf("while nothing is known the member that is down has got %d calls", by["b"])
	}
	second.Say(map[string]probe.Outcome{"a": probe.Failure, "b": probe.Success})
	c.reach(t, "b")
	c.whole(t)
}

func TestInvalidConfigurationsAreRejected(t *testing.T) {
	for want, c := range map[string]xds.Config{
		"without authentication": {Listen: "0.0.0.0:0"},
		"it must be an address":  {Listen: "9782"},
		"port number":            {Listen: "127.0.0.1:grpc"},
		"must be absolute":       {Listen: "unix:sonde.sock"},
		"at most 100 bytes":      {Listen: "unix:/" + strings.Repeat("x", 100)},
		"but needs at least 16":  {Listen: "127.0.0.1:0", Token: "short"},
		"without spaces":         {Listen: "127.0.0.1:0", Token: "0123456789 abcdef"},
		"from 0 to 10":           {Listen: "127.0.0.1:0", Retries: 11},
	} {
		var field *probe.FieldError
		if err := c.Check(); !errors.As(err, &field) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: the error is %v, want one with %q", c, err, want)
		}
	}
	for _, c := range []xds.Config{{Listen: "127.0.0.1:0"}, {Listen: "unix:/run/sonde-xds.sock", Retries: 10}, {Listen: ":0", Token: "0123456789abcdef"}} {
		if err := c.Check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
