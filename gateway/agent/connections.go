package agent

import (
	"net"
	"net/netip"
	"sync"
)

// connections bounds how many connections are open. At the bound a new one takes the place of the
// oldest one of the client that has the most: HAProxy's are answered at once, and those that send
// nothing, or slowly, are old.
type connections struct {
	limit int

	openMu sync.Mutex // guards all below
	open   map[net.Conn]connection
	opened uint64 // how many there were so far
}

type connection struct {
	from   netip.Addr
	number uint64 // in the order of their beginnings
}

// add adds a connection, and reports whether another one had to be closed for it.
func (c *connections) add(conn net.Conn, from netip.Addr) (evicted bool) {
	c.openMu.Lock()
	defer c.openMu.Unlock()
	if len(c.open) >= c.limit {
		c.evict()
		evicted = true
	}
	c.opened++
	c.open[conn] = connection{from, c.opened}
	return evicted
}

// evict closes the oldest connection of the client that has the most. It needs openMu.
func (c *connections) evict() {
	counts := map[netip.Addr]int{}
	for _, o := range c.open {
		counts[o.from]++
	}
	var victim net.Conn
	for conn, o := range c.open {
		v := c.open[victim]
		if victim == nil || counts[o.from] > counts[v.from] || counts[o.from] == counts[v.from] && o.number < v.number {
			victim = conn
		}
	}
	delete(c.open, victim)
	victim.Close()
}

// remove closes a connection, also one that was evicted.
func (c *connections) remove(conn net.Conn) {
	c.openMu.Lock()
	delete(c.open, conn)
	c.openMu.Unlock()
	conn.Close()
}
