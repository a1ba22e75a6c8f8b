package xds_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcxds "google.golang.org/grpc/xds"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/gateway/xds"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// backends are servers of gRPC, by the names of targets. Each answers as grpc.health.v1.
type backends struct {
	addresses map[string]string             // by name
	names     map[string]string             // by address
	health    map[string]*grpchealth.Server // by name
}

func newBackends(t *testing.T, names ...string) *backends {
	t.Helper()
	b := &backends{map[string]string{}, map[string]string{}, map[string]*grpchealth.Server{}}
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		b.health[name] = grpchealth.NewServer()
		healthv1.RegisterHealthServer(server, b.health[name])
		go func() { _ = server.Serve(l) }()
		t.Cleanup(server.Stop)
		b.addresses[name], b.names[l.Addr().String()] = l.Addr().String(), name
	}
	return b
}

// serve runs a server for the group of a scene until the test ends, and returns its address.
func serve(s *gatewaytest.Scene, c xds.Config) (address string, o *gatewaytest.Output) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	o = s.Serve(func() gateway.Output { return xds.New(c) })
	return strings.TrimPrefix(o.URL, "http://"), o
}

// dial returns a connection to a server.
func dial(t *testing.T, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// calls makes calls by grpc-go's client of xDS until the test ends.
type calls struct {
	backends *backends
	conn     *grpc.ClientConn
	done     atomic.Int64

	mu      sync.Mutex
	by      map[string]int       // by the name of a backend
	last    map[string]time.Time // when the last call of a backend began
	failed  int
	failure error
}

// clients are how many calls there are at once.
const clients = 4

func newCalls(t *testing.T, address string, b *backends) *calls {
	t.Helper()
	bootstrap := fmt.Sprintf(`{"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}],"server_features":["xds_v3"]}],"node":{"id":"client-1"}}`, address)
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting([]byte(bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	c := &calls{backends: b, conn: dial(t, "xds:///web", grpc.WithResolvers(resolver)), by: map[string]int{}, last: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	for range clients {
		calling.Go(func() {
			for ctx.Err() == nil {
				c.call(ctx)
			}
		})
	}
	t.Cleanup(func() { cancel(); calling.Wait() })
	return c
}

func (c *calls) call(ctx context.Context) {
	var by peer.Peer
	began := time.Now()
	_, err := healthv1.NewHealthClient(c.conn).Check(ctx, &healthv1.HealthCheckRequest{}, grpc.Peer(&by))
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	if err == nil {
		name := c.backends.names[by.Addr.String()]
		c.by[name]++
		c.last[name] = began
	} else {
		c.failed++
		c.failure = err
	}
	c.mu.Unlock()
	c.done.Add(1)
}

// pass waits until so many further calls have ended.
func (c *calls) pass(t *testing.T, n int64) {
	t.Helper()
	upTo := c.done.Load() + n
	testsync.Until(t, fmt.Sprint(n, " calls"), func() bool { return c.done.Load() >= upTo })
}

// take returns who has answered since it was called last.
func (c *calls) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := c.by
	c.by = map[string]int{}
	return by
}

// reach waits until just some backends answer.
func (c *calls) reach(t *testing.T, names ...string) {
	t.Helper()
	testsync.Until(t, "calls of "+strings.Join(names, ", "), func() bool {
		c.pass(t, clients) // those under way
		c.take()
		c.pass(t, 200)
		by := c.take()
		for _, name := range names {
			if by[name] == 0 {
				return false
			}
		}
		return len(by) == len(names)
	})
}

// lastOf returns when the last call of a backend began.
func (c *calls) lastOf(name string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[name]
}

// whole reports calls that have failed.
func (c *calls) whole(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed > 0 {
		t.Errorf("%d calls have failed: %v", c.failed, c.failure)
	}
}
