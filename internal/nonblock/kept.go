package nonblock

import (
	"net/netip"
	"sync"
	"syscall"
)

// Kept keeps the connection that the attempts of one probe use in turn, while none of
// them does. The zero value has none. It is safe for concurrent use by multiple
// goroutines.
type Kept struct {
	mu     sync.Mutex // guards what follows
	brief  bool       // the one before has ended after one attempt
	closed bool
	conn   keptConn
}

// keptConn is an open connection, or none. The Kept has it, or the attempt that uses it.
type keptConn struct {
	attempts int // that have used it; 0: there is none
	fd       int
	to       netip.AddrPort
	set      *Set   // that it is in, by edges; nil: in none
	watch    *Watch // nil where the system has none: then the next attempt finds the end
	armed    bool
}

func (c *keptConn) isNone() bool { return c.attempts == 0 }

// kept watches the kept connections of all probes: one goroutine, while there are any.
var kept Watcher

// take returns the connection to an address, and none if there is none or it has had its
// attempts, of which 0 are any number. Another connection is closed.
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

// put keeps a connection after an attempt, unless Close was called or another attempt
// was faster. Wake is called when the connection ends, nil if nobody waits for that. It is
// not called for a server that ends connections after one attempt, which is no news.
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

// ended closes a connection that the peer has ended, or that is of no use any more.
func (k *Kept) ended(c keptConn) {
	k.mu.Lock()
	k.brief = c.attempts == 1
	k.mu.Unlock()
	c.close()
}

// Close closes the connection. Attempts that are made later keep none.
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
	_ = CloseDescriptor(c.fd) // it is closed even if that fails
}

// descriptor is the syscall.RawConn of a descriptor that is open while it is watched.
type descriptor int

func (d descriptor) Control(f func(fd uintptr)) error { f(uintptr(d)); return nil }

// Read and Write are not called.
func (d descriptor) Read(func(fd uintptr) bool) error  { return syscall.ENOTSUP }
func (d descriptor) Write(func(fd uintptr) bool) error { return syscall.ENOTSUP }
