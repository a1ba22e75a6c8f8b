package main

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"runtime"

	"github.com/go-sql-driver/mysql"
)

// wire is the connection of a session. It records its first error, which the library does not
// return. It limits the size of packets, because the library allocates as much memory as a packet's
// header declares.
type wire struct {
	net.Conn
	secure bool // TLS follows after the first packet
	broken error
	head   []byte // the received part of the next packet's header
	left   int    // bytes left of the packet
	blind  bool   // packets are encrypted and cannot be tracked
}

// Read reads, and records an error.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 && !w.blind {
		if wrong := w.look(p[:n]); wrong != nil {
			return 0, w.remember(wrong)
		}
	}
	return n, w.remember(err)
}

// Write writes, and records an error.
func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	return n, w.remember(err)
}

func (w *wire) remember(err error) error {
	if w.broken == nil {
		w.broken = err
	}
	return err
}

// A packet starts with its length in three bytes, and a sequence number.
const (
	packetHead = 4
	maxPacket  = 256 << 10 // text in place of a header declares more
)

// look tracks packet boundaries and checks lengths.
func (w *wire) look(p []byte) error {
	for len(p) > 0 {
		if w.left > 0 {
			n := min(w.left, len(p))
			w.left, p = w.left-n, p[n:]
			continue
		}
		n := min(packetHead-len(w.head), len(p))
		w.head, p = append(w.head, p[:n]...), p[n:]
		if len(w.head) < packetHead {
			return nil
		}
		w.left = int(w.head[0]) | int(w.head[1])<<8 | int(w.head[2])<<16
		if w.left > maxPacket {
			return fmt.Errorf("the response is not MySQL's protocol, or exceeds %d bytes: it starts with %q", maxPacket, w.head)
		}
		w.head = w.head[:0]
		if w.secure {
			w.blind = true
			return nil
		}
	}
	return nil
}

var errGarbage = errors.New("the response is not MySQL's protocol")

// call calls the library, which panics on unexpected packets and hides the cause of connection
// errors.
func (c *session) call(library func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case runtime.Error: // an index or a slice out of range
			err = errGarbage
		default:
			panic(r)
		}
	}()
	err = library()
	if c.wire.broken == nil || !errors.Is(err, mysql.ErrInvalidConn) && !errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return c.wire.broken
}
