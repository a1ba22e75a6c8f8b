package guest

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// Conn is a connection that the host has made. It is a net.Conn. While it waits, all
// goroutines wait, so that it is for one goroutine at a time.
type Conn struct {
	fd       int32
	network  string
	nonblock bool
	gone     bool // closed, held, or a net.Conn now
}

// Read reads what has come, and waits until something has.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n := hostRead(c.fd, unsafe.SliceData(p), int32(len(p)))
	switch {
	case n < 0:
		return 0, trouble("read", n)
	case n == 0 && c.network != "udp":
		return 0, io.EOF
	}
	return int(n), nil
}

// Write writes all of p.
func (c *Conn) Write(p []byte) (int, error) {
	n := hostWrite(c.fd, unsafe.SliceData(p), int32(len(p)))
	if n < 0 {
		return 0, trouble("write", n)
	}
	return int(n), nil
}

// Close closes the connection. After the first call, and after Hold and NetConn, it
// does nothing.
func (c *Conn) Close() error {
	if c.gone {
		return nil
	}
	c.gone = true
	if n := hostClose(c.fd); n < 0 {
		return trouble("close", n)
	}
	return nil
}

// SetDeadline lets reads and writes fail at a time. The attempt's own deadline
// stands all the same, and is the only one for the zero time.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(deadlineRead|deadlineWrite, t) }

// SetReadDeadline is SetDeadline for reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(deadlineRead, t) }

// SetWriteDeadline is SetDeadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(deadlineWrite, t) }

func (c *Conn) setDeadline(which int32, t time.Time) error {
	var ns int64
	if !t.IsZero() {
		ns = max(int64(time.Until(t)), 1)
	}
	if n := hostDeadline(c.fd, which, ns); n < 0 {
		return trouble("deadline", n)
	}
	return nil
}

// StartTLS makes the handshake of a TLS client. Nothing may be left unread.
func (c *Conn) StartTLS(t TLS) error {
	if n := hostStartTLS(c.fd, t.options()); n < 0 {
		return trouble("tls", n)
	}
	return nil
}

// Info returns what is known of the connection, or "".
func (c *Conn) Info(what Info) string {
	b, _ := ask(func(buf *byte, limit int32) int32 { return hostConnInfo(c.fd, uint32(what), buf, limit) })
	return string(b)
}

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return addr{c.network, c.Info(InfoRemote)} }

// LocalAddr returns this side's address.
func (c *Conn) LocalAddr() net.Addr { return addr{c.network, c.Info(InfoLocal)} }

// NetConn turns the connection into one for libraries: while it waits, other
// goroutines run. The Conn must not be used any more.
func (c *Conn) NetConn() (net.Conn, error) {
	local, remote := c.LocalAddr(), c.RemoteAddr()
	if !c.nonblock {
		if err := syscall.SetNonblock(int(c.fd), true); err != nil {
			return nil, &Error{Op: "net conn", Err: err}
		}
	}
	c.gone = true
	f := os.NewFile(uintptr(c.fd), c.network)
	defer f.Close()
	polled, err := net.FileConn(f)
	if err != nil {
		return nil, &Error{Op: "net conn", Err: err}
	}
	return addressed{polled, local, remote}, nil
}

// addressed is a connection that knows its addresses: the system does not.
type addressed struct {
	net.Conn
	local, remote net.Addr
}

func (a addressed) LocalAddr() net.Addr  { return a.local }
func (a addressed) RemoteAddr() net.Addr { return a.remote }

// addr is an address as net.Conn tells it.
type addr struct{ network, text string }

func (a addr) Network() string { return a.network }
func (a addr) String() string  { return a.text }
