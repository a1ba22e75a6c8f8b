package guest

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// Conn is a connection made by the host. It is a net.Conn, for libraries too: while it waits, other goroutines run.
type Conn struct {
	fd       int32
	network  string
	nonblock bool
	gone     bool // closed, held, or turned into a net.Conn

	file   *os.File // by which it waits in the runtime's poller; nil until there was another goroutine
	readBy time.Time
}

// Read waits for bytes and reads them.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if file, err := c.polled(); file != nil || err != nil {
		return c.readFile(file, p, err)
	}
	n := hostRead(c.fd, unsafe.SliceData(p), int32(len(p)))
	switch {
	case n < 0:
		return 0, hostError("read", n)
	case n == 0 && c.network != "udp":
		return 0, io.EOF
	}
	return int(n), nil
}

// alone is how many goroutines there are when an attempt has only its own. A read that lets the host wait is much
// cheaper than one in the runtime's poller. It stops the only thread, which nobody notices then.
var alone int

// polled returns the file by which reads wait in the runtime's poller: from the first read on beside which there is
// another goroutine, or a timer of the attempt's context. Until then it is nil.
func (c *Conn) polled() (*os.File, error) {
	if c.file != nil || c.gone || runtime.NumGoroutine() <= alone && !timed {
		return c.file, nil
	}
	if err := c.setNonblock(); err != nil {
		return nil, err
	}
	c.file = os.NewFile(uintptr(c.fd), c.network)
	return c.file, c.file.SetReadDeadline(c.readBy)
}

func (c *Conn) setNonblock() error {
	if c.nonblock {
		return nil
	}
	if err := syscall.SetNonblock(int(c.fd), true); err != nil {
		return &Error{Op: "net conn", Err: err}
	}
	c.nonblock = true
	return nil
}

func (c *Conn) readFile(file *os.File, p []byte, err error) (n int, _ error) {
	if err == nil {
		n, err = file.Read(p)
	}
	if err == io.EOF && c.network == "udp" {
		return 0, nil // an empty datagram
	}
	return n, (&fileConn{conn: c}).error("read", err)
}

// Write writes all of p.
func (c *Conn) Write(p []byte) (int, error) {
	n := hostWrite(c.fd, unsafe.SliceData(p), int32(len(p)))
	if n < 0 {
		return 0, hostError("write", n)
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
	if c.file != nil {
		return (&fileConn{conn: c}).error("close", c.file.Close())
	}
	if n := hostClose(c.fd); n < 0 {
		return hostError("close", n)
	}
	return nil
}

// SetDeadline makes reads and writes fail at a time; the zero time removes that deadline.
// The attempt's own deadline always applies.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(deadlineRead|deadlineWrite, t) }

// SetReadDeadline is SetDeadline for reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(deadlineRead, t) }

// SetWriteDeadline is SetDeadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(deadlineWrite, t) }

func (c *Conn) setDeadline(which int32, t time.Time) error {
	if which&deadlineRead != 0 {
		c.readBy = t
		if c.file != nil {
			if err := c.file.SetReadDeadline(t); err != nil {
				return (&fileConn{conn: c}).error("set", err)
			}
		}
	}
	var ns int64
	if !t.IsZero() {
		ns = max(int64(time.Until(t)), 1)
	}
	if n := hostDeadline(c.fd, which, ns); n < 0 {
		return hostError("deadline", n)
	}
	return nil
}

// StartTLS makes a TLS client's handshake. All bytes received before must have been read.
func (c *Conn) StartTLS(t TLS) error {
	if n := hostStartTLS(c.fd, t.options()); n < 0 {
		return hostError("tls", n)
	}
	return nil
}

// Info returns a property of the connection, or "".
func (c *Conn) Info(what Info) string {
	b, _ := ask(func(buf *byte, limit int32) int32 { return hostConnInfo(c.fd, uint32(what), buf, limit) })
	return string(b)
}

// RemoteAddr returns the peer's network address.
func (c *Conn) RemoteAddr() net.Addr { return addr{c.network, c.Info(InfoRemote)} }

// LocalAddr returns the local network address.
func (c *Conn) LocalAddr() net.Addr { return addr{c.network, c.Info(InfoLocal)} }

// NetConn returns a net.Conn that is no Conn, such as for a library that looks for other methods.
// The Conn must not be used afterwards.
func (c *Conn) NetConn() (net.Conn, error) {
	if err := c.setNonblock(); err != nil {
		return nil, err
	}
	c.gone = true
	if c.file == nil {
		c.file = os.NewFile(uintptr(c.fd), c.network)
	}
	return &fileConn{file: c.file, conn: c}, nil
}

// fileConn is a net.Conn. It takes half of the computation of one that package net makes of a
// file: that has the descriptor twice, and does not know its addresses.
type fileConn struct {
	file          *os.File
	conn          *Conn
	local, remote net.Addr // nil until they are asked for
}

func (c *fileConn) Read(p []byte) (int, error) {
	n, err := c.file.Read(p)
	return n, c.error("read", err)
}

func (c *fileConn) Write(p []byte) (int, error) {
	n, err := c.file.Write(p)
	return n, c.error("write", err)
}

func (c *fileConn) Close() error { return c.error("close", c.file.Close()) }

// LocalAddr returns the local network address, also after Close if it was asked for before.
func (c *fileConn) LocalAddr() net.Addr {
	if c.local == nil {
		c.local = c.conn.LocalAddr()
	}
	return c.local
}

// RemoteAddr returns the peer's network address, also after Close if it was asked for before.
func (c *fileConn) RemoteAddr() net.Addr {
	if c.remote == nil {
		c.remote = c.conn.RemoteAddr()
	}
	return c.remote
}

func (c *fileConn) SetDeadline(t time.Time) error { return c.error("set", c.file.SetDeadline(t)) }

func (c *fileConn) SetReadDeadline(t time.Time) error {
	return c.error("set", c.file.SetReadDeadline(t))
}

func (c *fileConn) SetWriteDeadline(t time.Time) error {
	return c.error("set", c.file.SetWriteDeadline(t))
}

// error returns an error of a file as package net would have it.
func (c *fileConn) error(op string, err error) error {
	path, ok := err.(*os.PathError)
	if !ok {
		return err
	}
	e := &net.OpError{Op: op, Net: c.conn.network, Err: path.Err}
	if errors.Is(path.Err, os.ErrClosed) {
		e.Err = net.ErrClosed
	}
	return e
}

// addr is a net.Addr.
type addr struct{ network, text string }

func (a addr) Network() string { return a.network }
func (a addr) String() string  { return a.text }
