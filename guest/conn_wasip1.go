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

// Conn is a connection made by the host. It implements net.Conn and can be passed to libraries:
// while it waits for bytes, other goroutines run.
type Conn struct {
	fd            int32
	network       string
	gone          bool     // closed or held
	local, remote net.Addr // nil until first requested

	file   *os.File // used to wait in the runtime's poller; nil until a read needs that
	readBy time.Time
}

// Read waits for bytes and reads them.
func (c *Conn) Read(p []byte) (n int, err error) {
	switch file, err := c.polled(); {
	case len(p) == 0:
		return 0, nil
	case err != nil:
		return 0, c.error("read", err)
	case file != nil:
		if n, err = file.Read(p); err == io.EOF && c.network == "udp" {
			return 0, nil // an empty datagram
		}
		return n, c.error("read", err)
	}
	switch n := hostRead(c.fd, unsafe.SliceData(p), int32(len(p))); {
	case n < 0:
		return 0, hostError("read", n)
	case n == 0 && c.network != "udp":
		return 0, io.EOF
	default:
		return int(n), nil
	}
}

// alone is the number of goroutines at the start of an attempt. While there are no others, a read waits in the
// host, which is much cheaper than to wait in the runtime's poller. It blocks the only thread, but no other
// goroutine needs it.
var alone int

// polled returns the file by which reads wait in the runtime's poller. It returns nil until the first read during
// which there is another goroutine or a timer of the attempt's context.
func (c *Conn) polled() (*os.File, error) {
	switch {
	case c.file != nil:
		return c.file, nil
	case c.gone:
		return nil, net.ErrClosed
	case runtime.NumGoroutine() <= alone && !timed:
		return nil, nil
	}
	if err := syscall.SetNonblock(int(c.fd), true); err != nil {
		return nil, err
	}
	c.file = os.NewFile(uintptr(c.fd), c.network)
	return c.file, c.file.SetReadDeadline(c.readBy)
}

// error converts an error of a file to an error as package net would return it.
func (c *Conn) error(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	if errors.Is(err, os.ErrClosed) {
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: c.network, Err: err}
}

// Write writes all of p.
func (c *Conn) Write(p []byte) (int, error) {
	if c.gone {
		return 0, c.error("write", net.ErrClosed)
	}
	n := hostWrite(c.fd, unsafe.SliceData(p), int32(len(p)))
	if n < 0 {
		return 0, hostError("write", n)
	}
	return int(n), nil
}

// Close closes the connection. After the first call, and after Hold, it does nothing.
func (c *Conn) Close() error {
	if c.gone {
		return nil
	}
	c.gone = true
	if c.file != nil {
		return c.error("close", c.file.Close())
	}
	if n := hostClose(c.fd); n < 0 {
		return hostError("close", n)
	}
	return nil
}

// SetDeadline sets the time after which reads and writes fail; the zero time removes the deadline.
// The attempt's own deadline always applies.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(deadlineRead|deadlineWrite, t) }

// SetReadDeadline is like SetDeadline, for reads only.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(deadlineRead, t) }

// SetWriteDeadline is like SetDeadline, for writes only.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(deadlineWrite, t) }

func (c *Conn) setDeadline(which int32, t time.Time) error {
	if which&deadlineRead != 0 {
		c.readBy = t
		if c.file != nil {
			if err := c.file.SetReadDeadline(t); err != nil {
				return c.error("set", err)
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

// StartTLS performs a TLS handshake as the client. All bytes received before must have been read.
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

// RemoteAddr returns the peer's network address. After Close it is available only if it was
// requested before.
func (c *Conn) RemoteAddr() net.Addr { return c.addr(&c.remote, InfoRemote) }

// LocalAddr returns the local network address. After Close it is available only if it was requested
// before.
func (c *Conn) LocalAddr() net.Addr { return c.addr(&c.local, InfoLocal) }

func (c *Conn) addr(known *net.Addr, what Info) net.Addr {
	if *known == nil {
		*known = addr{c.network, c.Info(what)}
	}
	return *known
}

// addr is a net.Addr.
type addr struct{ network, text string }

func (a addr) Network() string { return a.network }
func (a addr) String() string  { return a.text }
