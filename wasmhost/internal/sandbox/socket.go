package sandbox

import (
	"net"
	"os"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
)

// socket is a connection as a guest sees it: a descriptor that can be polled. Only the
// goroutine of the call that owns it uses it, and for a while its reader.
type socket struct {
	conn       net.Conn
	dest       grant.Dest
	nonblock   bool
	keepsAlive bool            // the system has the settings of keepalive packets, which stay
	account    *account        // in which its memory is counted
	reserved   int64           // bytes that are counted
	isSeparate bool            // connSize is among them; otherwise it is counted with the instance
	watch      *nonblock.Watch // nil until it is held
	reader     chan struct{}   // closed when the reader has ended; nil without one

	readBy, writeBy time.Time // the guest's own deadlines; zero for none

	// What follows is the reader's while there is one.

	buf  []byte // buffer for bytes that the guest has not read yet
	data []byte // the bytes in buf
	err  error  // of the read after data; io.EOF when the peer has closed the connection
}

// Sizes of socket.buf.
const (
	streamBuffer   = 4 << 10
	datagramBuffer = 1<<16 - 1
)

// What a connection uses, in bytes, beside the system's buffers.
const (
	connSize   = 4<<10 + streamBuffer // the structures of package net, and ours
	tlsSize    = 48 << 10
	optionSize = 8 // for each byte of the options of TLS, which may be certificates
)

// release returns the memory that is counted.
func (s *socket) release() {
	if s.reserved > 0 {
		totalMemory.use(s.account, -s.reserved, 0)
		s.reserved = 0
	}
}

// markShared says that the connection is held, and so not a part of an instance, with sign 1, and
// with sign -1 that it is held no longer.
func (s *socket) markShared(sign int64) { totalMemory.use(s.account, 0, sign*s.reserved) }

func (s *socket) datagram() bool { return s.dest.Network == "udp" }

// readable reports whether a read would return at once, and the number of bytes.
func (s *socket) readable() (n int, ok bool) {
	if s.hasReader() {
		return 0, false
	}
	return len(s.data), len(s.data) > 0 || s.err != nil
}

// readBuffered reads from the buffer. False means that the connection must be read.
func (s *socket) readBuffered(p []byte) (n int, err error, ok bool) {
	switch unread, ok := s.readable(); {
	case !ok:
		return 0, nil, false
	case unread == 0:
		return 0, s.err, true
	}
	n = copy(p, s.data)
	if s.data = s.data[n:]; s.datagram() {
		s.data = nil // the rest of a datagram is lost
	}
	return n, nil, true
}

// readAhead reads from the connection into the buffer. A deadline that passes is not an error.
func (s *socket) readAhead() {
	if s.buf == nil {
		s.buf = make([]byte, streamBuffer)
		if s.datagram() {
			s.buf = make([]byte, datagramBuffer)
		}
	}
	n, err := s.conn.Read(s.buf)
	s.data = s.buf[:n]
	s.recordError(n, err)
}

// recordError records an error that all later reads return.
func (s *socket) recordError(n int, err error) {
	if n == 0 && err != nil && !isTimeout(err) {
		s.err = err
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout() || err == os.ErrDeadlineExceeded
}

// hasReader reports whether a goroutine is reading from the connection, or has ended since pollReader.
func (s *socket) hasReader() bool { return s.reader != nil }

// startReader starts a goroutine that fills the buffer once, and then signals wake.
func (s *socket) startReader(wake chan<- struct{}) {
	if s.hasReader() {
		return
	}
	done := make(chan struct{})
	s.reader = done
	go func() {
		s.readAhead()
		close(done)
		select {
		case wake <- struct{}{}:
		default:
		}
	}()
}

// pollReader checks whether the reader has ended.
func (s *socket) pollReader() {
	select {
	case <-s.reader: // nil blocks
		s.reader = nil
	default:
	}
}

// stopReader ends the reader, if there is one, and keeps what it has read.
func (s *socket) stopReader() {
	if !s.hasReader() {
		return
	}
	_ = s.conn.SetReadDeadline(past()) // an error means that it is closed, which ends the reader too
	<-s.reader
	s.reader = nil
}

// close closes the connection and waits for its reader.
func (s *socket) close() {
	s.watch.Remove()
	_ = dial.Close(s.conn) // there is nothing to do about an error
	s.stopReader()
	s.release()
}

// past returns a time that has passed.
func past() time.Time { return time.Unix(1, 0) }

// shutdown ends writing, if how includes it.
func (s *socket) shutdown(how uint32) abi.Errno {
	const write = 2
	if how&write == 0 {
		return abi.OK
	}
	half, ok := s.conn.(interface{ CloseWrite() error })
	if !ok {
		return abi.ENOTSUP
	}
	if err := half.CloseWrite(); err != nil {
		return abi.ENOTCONN
	}
	return abi.OK
}
