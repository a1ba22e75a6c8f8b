package listener

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections limits how many connections are open, and waits until their goroutines
// have ended, which is soon after they are closed. A new connection beyond the limit
// takes the place of the one that needs it least, so that clients which keep connections
// open cannot shut out others, such as a health check.
type connections struct {
	limit int
	lost  func(why string) // see HTTP.Lost
	group sync.WaitGroup

	openMu sync.Mutex // guards open, and the fields of each connection
	open   map[net.Conn]*connection
}

// connection is an open connection.
type connection struct {
	state http.ConnState
	since time.Time // of the state
	long  bool      // see KeepOpen
}

// onState is http.Server.ConnState: it is called with StateNew before a connection
// has a goroutine, and with StateClosed at the goroutine's end.
func (c *connections) onState(conn net.Conn, state http.ConnState) {
	c.openMu.Lock()
	defer c.openMu.Unlock()
	switch state {
	case http.StateNew:
		c.group.Add(1)
		if len(c.open) >= c.limit {
			c.evict()
		}
		c.open[conn] = &connection{state: state, since: time.Now()}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
		c.group.Done()
	default:
		if o := c.open[conn]; o != nil { // otherwise it was closed by evict
			o.state, o.since, o.long = state, time.Now(), false
		}
	}
}

// evict closes the connection that needs its place least: one that waits for a request
// before one whose client is being answered, and one of KeepOpen last. Among equals it is
// the one that has waited the longest. The caller holds openMu.
func (c *connections) evict() {
	var victim net.Conn
	var least *connection
	for conn, o := range c.open {
		if least == nil || o.rank() < least.rank() || o.rank() == least.rank() && o.since.Before(least.since) {
			victim, least = conn, o
		}
	}
	delete(c.open, victim)
	if least.state != http.StateIdle {
		c.lost("there were too many connections, and one was closed before it was served")
	}
	if t, ok := victim.(*tls.Conn); ok {
		victim = t.NetConn() // tls.Conn.Close may wait for the client
	}
	victim.Close()
}

func (o *connection) rank() int {
	switch {
	case o.state != http.StateActive:
		return 0
	case !o.long:
		return 1
	}
	return 2
}

// markerKey is the key of the function in a request's context that KeepOpen calls.
type markerKey struct{}

// context is http.Server.ConnContext.
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, markerKey{}, func() {
		c.openMu.Lock()
		defer c.openMu.Unlock()
		if o := c.open[conn]; o != nil {
			o.long = true
		}
	})
}

// KeepOpen says of a request, by its context, that its answer takes long because the client
// wants it so: an event stream, for example, whose number the handler limits. Its connection
// keeps its place as long as another one can be closed.
func KeepOpen(ctx context.Context) {
	if mark, ok := ctx.Value(markerKey{}).(func()); ok { // not without Serve
		mark()
	}
}
