package xds

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
)

// connections is a listener with a bound on the connections that are open, so that clients which
// open many cannot shut out others. Beyond the bound, a new connection takes the place of the one
// that has had no call for longest. If all have calls, which only admitted clients have, the new one is closed.
//
// It is the stats.Handler of the server, too, which tells it of calls.
type connections struct {
	net.Listener

	openMu sync.Mutex // guards open, and the fields of each connection
	open   map[*connection]bool
}

// connection is an open connection.
type connection struct {
	net.Conn
	listener *connections
	calls    int
	idle     time.Time // since then there is no call
}

func limitConnections(l net.Listener) *connections {
	return &connections{Listener: l, open: map[*connection]bool{}}
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := (&connection{Conn: conn, listener: l, idle: time.Now()}); l.admit(c) {
			return c, nil
		}
		conn.Close()
	}
}

// admit reports whether there is a place for a connection, after it has closed another one if
// necessary.
func (l *connections) admit(c *connection) bool {
	l.openMu.Lock()
	defer l.openMu.Unlock()
	if len(l.open) >= maxConnections {
		var idlest *connection
		for o := range l.open {
			if o.calls == 0 && (idlest == nil || o.idle.Before(idlest.idle)) {
				idlest = o
			}
		}
		if idlest == nil {
			return false
		}
		delete(l.open, idlest)
		idlest.Conn.Close()
	}
	l.open[c] = true
	return true
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.listener.openMu.Lock()
	delete(c.listener.open, c)
	c.listener.openMu.Unlock()
	return c.Conn.Close()
}

// RemoteAddr implements net.Conn. TagConn finds the connection by it.
func (c *connection) RemoteAddr() net.Addr { return addressOf{c.Conn.RemoteAddr(), c} }

// addressOf is the address of the client of a connection.
type addressOf struct {
	net.Addr
	connection *connection
}

// connectionKey is the key of the *connection in the contexts of its calls.
type connectionKey struct{}

// TagConn implements stats.Handler.
func (l *connections) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	address, _ := info.RemoteAddr.(addressOf)
	return context.WithValue(ctx, connectionKey{}, address.connection)
}

// HandleRPC implements stats.Handler.
func (l *connections) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	if c == nil {
		return
	}
	l.openMu.Lock()
	defer l.openMu.Unlock()
	switch s.(type) {
	case *stats.Begin:
		c.calls++
	case *stats.End:
		c.calls--
		c.idle = time.Now()
	}
}

// TagRPC implements stats.Handler.
func (l *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (l *connections) HandleConn(context.Context, stats.ConnStats) {}
