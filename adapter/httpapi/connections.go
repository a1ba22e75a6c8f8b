package httpapi

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
	group sync.WaitGroup

	openMu sync.Mutex // guards open, and the fields of each connection
	open   map[net.Conn]*connection
}

// connection is an open connection.
type connection struct {
	state  http.ConnState
	since  time.Time // of the state
	stream bool      // it carries an event stream, or a request that waits, which semaphores of their own limit
}

// onState is http.Server.ConnState: it is called with StateNew before a connection
// has a goroutine, and with StateClosed at the goroutine's end.
func (c *connections) onState(conn net.Conn, state http.ConnState) {
	c.openMu.Lock()
	defer c.openMu.Unlock()
	switch state {
	case http.StateNew:
		c.group.Add(1)
		if len(c.open) >= MaxConnections {
			c.evict()
		}
		c.open[conn] = &connection{state: state, since: time.Now()}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
		c.group.Done()
	default:
		if o := c.open[conn]; o != nil { // otherwise it was closed by evict
			o.state, o.since, o.stream = state, time.Now(), false
		}
	}
}

// evict closes the connection that needs its place least: one that waits for a request
// before one whose client is being answered, and an event stream last. Among equals it is
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
	if t, ok := victim.(*tls.Conn); ok {
		victim = t.NetConn() // tls.Conn.Close may wait for the client
	}
	victim.Close()
}

func (o *connection) rank() int {
	switch {
	case o.state != http.StateActive:
		return 0
	case !o.stream:
		return 1
	}
	return 2
}

// markerKey is the key of a function in a request's context that marks its connection as
// one with an event stream.
type markerKey struct{}

// markStream marks the connection of a request as one with an event stream.
func markStream(r *http.Request) {
	if mark, ok := r.Context().Value(markerKey{}).(func()); ok { // not without Serve
		mark()
	}
}

// context is http.Server.ConnContext.
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, markerKey{}, func() {
		c.openMu.Lock()
		defer c.openMu.Unlock()
		if o := c.open[conn]; o != nil {
			o.stream = true
		}
	})
}

// maxPart is how much of a response is written within StallTimeout, in bytes.
const maxPart = 64 << 10

// pacedWriter disconnects a client that does not read its response: maxPart bytes within
// StallTimeout, and all of it within WriteTimeout.
type pacedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	end     time.Time // of WriteTimeout
}

// paced returns a handler whose responses are written by a pacedWriter.
func paced(h http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&pacedWriter{w, http.NewResponseController(w), time.Now().Add(WriteTimeout)}, r)
	}
}

// Write implements io.Writer.
func (p *pacedWriter) Write(b []byte) (n int, err error) {
	for {
		deadline := time.Now().Add(StallTimeout)
		if p.end.Before(deadline) {
			deadline = p.end
		}
		p.control.SetWriteDeadline(deadline) // an error means that the ResponseWriter has no deadlines
		part := b[n:min(n+maxPart, len(b))]
		written, err := p.ResponseWriter.Write(part)
		n += written
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// Unwrap is for http.ResponseController.
func (p *pacedWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
