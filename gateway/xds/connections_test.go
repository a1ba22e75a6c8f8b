package xds

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc/stats"
)

// from is a listener with one connection from an address.
type from struct {
	net.Listener
	ip string
}

func (l from) Accept() (net.Conn, error) {
	if l.ip == "" {
		return nil, net.ErrClosed
	}
	conn, _ := net.Pipe()
	return remote{conn, &net.TCPAddr{IP: net.ParseIP(l.ip)}}, nil
}

type remote struct {
	net.Conn
	address net.Addr
}

func (r remote) RemoteAddr() net.Addr { return r.address }

// A connection that has had no call for longest gives way to another one.
func TestConnectionsWithoutCallsGiveWay(t *testing.T) {
	l := limitConnections(nil)
	connect := func(ip string) *connection {
		t.Helper()
		l.Listener = from{ip: ip}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return conn.(*connection)
	}
	other, busy := connect("10.0.0.1"), connect("10.0.0.2")
	ctx := l.TagConn(context.Background(), &stats.ConnTagInfo{RemoteAddr: busy.RemoteAddr()})
	l.HandleRPC(ctx, &stats.Begin{})
	for i := range maxConnections {
		connect(fmt.Sprintf("10.1.%d.%d", i/200, i%200))
	}
	if len(l.open) != maxConnections || l.open[other] || !l.open[busy] {
		t.Errorf("%d connections are open, want %d; the oldest: %v; the one with a call: %v", len(l.open), maxConnections, l.open[other], l.open[busy])
	}
	l.HandleRPC(ctx, &stats.End{})
	for range maxConnections {
		connect("10.0.0.2")
	}
	if l.open[busy] {
		t.Error("a connection without a call any more does not give way")
	}
}
