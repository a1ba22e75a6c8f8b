package listener

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// connections limits how many connections are open, and waits until their goroutines have exited, which is soon after they are
// closed. A new connection beyond the limit replaces the least needed one, so that clients that keep connections open cannot shut
// out others, such as a health check.
type connections struct {
	limit int
	lost  func(why string, from netip.Addr) // see HTTP.Lost
	group sync.WaitGroup

	openMu sync.Mutex // guards open, and the fields of each connection
	open   map[net.Conn]*connection
}

// connection is an open connection.
type connection struct {
	from  netip.Addr // see Client
	state http.ConnState
	since time.Time // of the state
	long  bool      // see KeepOpen
}

// shares is the number of shares into which the limit is divided. A client with more connections than one share loses its own
// before any other client does.
const shares = 4

// onState implements http.Server.ConnState: the server calls it with StateNew before a connection has a goroutine, and with
// StateClosed when the goroutine exits.
func (c *connections) onState(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		c.add(conn)
		return
	}
	c.openMu.Lock()
	defer c.openMu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
		c.group.Done()
	default:
		if o := c.open[conn]; o != nil { // otherwise it was closed by add
			o.state, o.since, o.long = state, time.Now(), false
		}
	}
}

// add adds a connection and, if the limit is exceeded, closes another one.
func (c *connections) add(conn net.Conn) {
	c.group.Add(1)
	c.openMu.Lock()
	var victim net.Conn
	var evicted *connection
	var isGreedy bool
	if len(c.open) >= c.limit {
		victim, isGreedy = c.leastNeeded()
		evicted = c.open[victim]
		delete(c.open, victim)
	}
	c.open[conn] = &connection{from: clientOf(conn.RemoteAddr().String()), state: http.StateNew, since: time.Now()}
	wasUnserved := evicted != nil && evicted.state != http.StateIdle
	c.openMu.Unlock()

	if wasUnserved && isGreedy {
		c.lost("a client had too many connections, and one was closed before it was served", evicted.from)
	} else if wasUnserved {
		c.lost("there were too many connections, and one was closed before it was served", netip.Addr{})
	}
	if t, ok := victim.(*tls.Conn); ok {
		victim = t.NetConn() // tls.Conn.Close may wait for the client
	}
	if victim != nil {
		victim.Close()
	}
}

// leastNeeded returns the least needed connection, and whether its client has more than its share. If any client exceeds its share,
// the client that exceeds it most loses one of its own connections. Among the candidates, a connection that waits for a request is
// closed before one with a request in progress, and those of KeepOpen last; among equals, the one that has been in its state
// longest. The caller must hold openMu.
func (c *connections) leastNeeded() (victim net.Conn, isGreedy bool) {
	counts := map[netip.Addr]int{}
	for _, o := range c.open {
		counts[o.from]++
	}
	excess := func(o *connection) int { return max(counts[o.from]-max(c.limit/shares, 1), 0) }
	for conn, o := range c.open {
		least := c.open[victim]
		if least == nil || cmp.Or(cmp.Compare(excess(least), excess(o)), cmp.Compare(o.rank(), least.rank()), o.since.Compare(least.since)) < 0 {
			victim = conn
		}
	}
	return victim, excess(c.open[victim]) > 0
}

// Client returns an ID of the client of a request: its IPv4 address, or the first half of its IPv6 address, since a client may have
// many of those. It is not valid if the client has no address, as on a unix socket.
func Client(r *http.Request) netip.Addr { return clientOf(r.RemoteAddr) }

func clientOf(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	from := at.Addr().Unmap().WithZone("")
	if from.Is6() {
		network, _ := from.Prefix(64) // never returns an error: 64 is in range
		return network.Masked().Addr()
	}
	return from
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

// markerKey is the context key of the function that KeepOpen calls for a request.
type markerKey struct{}

// context implements http.Server.ConnContext.
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, markerKey{}, func() {
		c.openMu.Lock()
		defer c.openMu.Unlock()
		if o := c.open[conn]; o != nil {
			o.long = true
		}
	})
}

// KeepOpen declares, by the request's context, that the response takes long because the client wants it to: an event stream, for
// example, whose number the handler limits. The connection of the request keeps its place as long as another one can be closed.
func KeepOpen(ctx context.Context) {
	if mark, ok := ctx.Value(markerKey{}).(func()); ok { // absent outside Serve
		mark()
	}
}
