package sandbox

import (
	"crypto/tls"
	"sync"

	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
)

// descriptors has a guest's open connections by number, and counts their memory. When the call is
// over, reads and writes of these connections no longer wait.
type descriptors struct {
	life    *lifetime
	cpu     *cpu // releases its slot while other plugins close instances
	account *account
	next    int32

	mu      sync.Mutex // guards the fields below, and the deadlines of sockets
	sockets map[int32]*socket
}

// get returns the connection with a descriptor.
func (d *descriptors) get(fd int32) (*socket, bool) {
	s, ok := d.sockets[fd]
	return s, ok
}

// add gives a connection a new descriptor.
func (d *descriptors) add(s *socket) int {
	fd := d.next
	d.next++
	d.addAs(fd, s)
	return int(fd)
}

// addAs adds a connection under a given descriptor.
func (d *descriptors) addAs(fd int32, s *socket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sockets == nil {
		d.sockets = make(map[int32]*socket)
	}
	d.sockets[fd] = s
	if d.life.isOver() {
		_ = s.conn.SetDeadline(past()) // an error means that it is closed
	}
}

// remove removes a connection without closing it.
func (d *descriptors) remove(fd int32) (*socket, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.sockets[fd]
	delete(d.sockets, fd)
	return s, ok
}

// secured replaces the connection of a socket with a TLS connection over it.
func (d *descriptors) secured(s *socket, conn *tls.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.conn, s.dest.Network = conn, "tls"
}

// closeAll closes the connections.
func (d *descriptors) closeAll() {
	d.mu.Lock()
	open := d.sockets
	d.sockets = nil
	d.mu.Unlock()
	for _, s := range open {
		s.close()
	}
}

// setDeadline calls set, which sets a deadline of a connection. It does nothing if the call is
// over, because then interrupt sets all deadlines. An error of set means that the connection is
// closed.
func (d *descriptors) setDeadline(set func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.life.isOver() {
		_ = set()
	}
}

// interrupt ends all waits for connections when the call is over. It runs on a separate goroutine.
func (d *descriptors) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sockets {
		_ = s.conn.SetDeadline(past()) // an error means that it is closed
	}
}

// newSocket returns a socket without a connection, and counts its memory. It returns false if the
// budget has none left. The first connection is already counted with the instance: otherwise the
// start of other instances could leave no memory for it.
func (d *descriptors) newSocket(to grant.Dest) (*socket, bool) {
	s := &socket{dest: to, account: d.account}
	ok := len(d.sockets) == 0 || d.separate(s)
	if ok && s.datagram() {
		ok = d.reserveFor(s, datagramBuffer)
	}
	if !ok {
		s.release()
	}
	return s, ok
}

// reserveFor counts more memory for a connection. It returns false if the budget has none left.
func (d *descriptors) reserveFor(s *socket, bytes int64) bool {
	ok := totalMemory.reserve(s.account, bytes, d.cpu.releaseSlot)
	if ok {
		s.reserved += bytes
	}
	return ok
}

// separate counts a connection separately from the instance of its call, because it is not the
// instance's first one or because it outlives the call. It returns false if the budget has no memory
// left.
func (d *descriptors) separate(s *socket) bool {
	s.isSeparate = s.isSeparate || d.reserveFor(s, connSize)
	return s.isSeparate
}
