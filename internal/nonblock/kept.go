package nonblock

import (
	"net/netip"
	"sync"
	"syscall"
)

// Kept keeps the connection that the attempts of one probe use in turn, between those attempts. The zero value has none. It is safe
// for concurrent use by multiple goroutines.
type Kept struct {
	mu     sync.Mutex // guards the fields below
	brief  bool       // the previous connection has ended after one attempt
	closed bool
	conn   keptConn
}

// keptConn is an open connection, or none. It belongs to the Kept, or to the attempt that uses it.
type keptConn struct {
	attempts int // number of attempts that have used it; 0: no connection
	fd       int
	to       netip.AddrPort
	set      *Set   // the Set that contains it, edge-triggered; nil: none
	watch    *Watch // nil where the system cannot watch: then the next attempt detects the end
	armed    bool
}

func (c *keptConn) isNone() bool { return c.attempts == 0 }

// kept watches the kept connections of all probes. It runs one goroutine while there are any.
var kept Watcher

// take returns the kept connection if it is to an address and was used by fewer than attempts attempts (0: any number), otherwise
// none. Take closes a connection that it does not return.
func (k *Kept) take(to netip.AddrPort, attempts int) keptConn {
	if k == nil {
		return keptConn{}
	}
	c := k.remove()
	if c.isNone() || c.to == to && (attempts == 0 || c.attempts < attempts) {
		return c
	}
	c.close()
	return keptConn{}
}

func (k *Kept) remove() (c keptConn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, k.conn = k.conn, keptConn{}
	return c
}

// put keeps a connection after an attempt, unless Close was called or a concurrent attempt has kept another one. Wake, if it is not
// nil, is called when the connection ends; but not for a server that ends every connection after one attempt, where the end is
// normal.
func (k *Kept) put(c keptConn, wake func()) {
	c.attempts++
	k.mu.Lock()
	k.brief = k.brief && c.attempts == 1
	keeps := !k.closed && k.conn.isNone()
	arms := keeps && wake != nil && !c.armed && !k.brief
	if keeps {
		c.armed = c.armed || arms
		k.conn = c
	}
	k.mu.Unlock()
	switch {
	case !keeps:
		c.close()
	case arms:
		c.watch.Arm(wake)
	}
}

// ended closes a connection that the peer has ended, or that is no longer needed.
func (k *Kept) ended(c keptConn) {
	k.mu.Lock()
	k.brief = c.attempts == 1
	k.mu.Unlock()
	c.close()
}

// Close closes the connection. Later attempts keep no connection.
func (k *Kept) Close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	if c := k.remove(); !c.isNone() {
		c.close()
	}
}

func (c *keptConn) close() {
	c.watch.Remove()
	_ = CloseDescriptor(c.fd) // it is closed even after an error
}

// descriptor is the syscall.RawConn of a descriptor that stays open while it is watched.
type descriptor int

func (d descriptor) Control(f func(fd uintptr)) error { f(uintptr(d)); return nil }

// Read and Write are never called.
func (d descriptor) Read(func(fd uintptr) bool) error  { return syscall.ENOTSUP }
func (d descriptor) Write(func(fd uintptr) bool) error { return syscall.ENOTSUP }
