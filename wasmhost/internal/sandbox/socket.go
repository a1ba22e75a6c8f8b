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

// socket is a guest's connection: a descriptor that can be polled. It is used only by the goroutine
// of the call that owns it, and temporarily by its reader.
type socket struct {
	conn       net.Conn
	dest       grant.Dest
	nonblock   bool
	keepsAlive bool            // the keepalive settings are already applied
	account    *account        // the account that its memory is counted in
	reserved   int64           // bytes counted
	isSeparate bool            // reserved includes connSize; otherwise connSize is counted with the instance
	watch      *nonblock.Watch // nil until the connection is held
	reader     chan struct{}   // closed when the reader has finished; nil without a reader

	readBy, writeBy time.Time // the guest's own deadlines; zero for none

	// The fields below belong to the reader while there is one.

	buf  []byte // buffer for bytes that the guest has not read yet
	data []byte // the bytes in buf
	err  error  // error of the read after data; io.EOF if the peer has closed the connection
}

// Sizes of socket.buf.
const (
	streamBuffer   = 4 << 10
	datagramBuffer = 1<<16 - 1
)

// The memory of a connection in bytes, without the system's buffers.
const (
	connSize   = 4<<10 + streamBuffer // the structures of package net, and ours
	tlsSize    = 48 << 10
	optionSize = 8 // for each byte of the TLS options, which may contain certificates
)

// release returns the counted memory to the budget.
func (s *socket) release() {
	if s.reserved > 0 {
		totalMemory.use(s.account, -s.reserved, 0)
		s.reserved = 0
	}
}

// markShared moves the connection's memory out of an instance when the connection becomes held
// (sign 1), and back when it is no longer held (sign -1).
func (s *socket) markShared(sign int64) { totalMemory.use(s.account, 0, sign*s.reserved) }

func (s *socket) datagram() bool { return s.dest.Network == "udp" }

// readable reports whether a read would return at once, and the number of buffered bytes.
func (s *socket) readable() (n int, ok bool) {
	if s.hasReader() {
		return 0, false
	}
	return len(s.data), len(s.data) > 0 || s.err != nil
}

// readBuffered reads from the buffer. ok is false if the connection itself must be read.
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

// readAhead reads from the connection into the buffer. An exceeded deadline is not recorded as an
// error.
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

// hasReader reports whether a goroutine is reading from the connection, or has finished since the last
// pollReader.
func (s *socket) hasReader() bool { return s.reader != nil }

// startReader starts a goroutine that reads into the buffer once and then signals wake.
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

// pollReader checks whether the reader has finished.
func (s *socket) pollReader() {
	select {
	case <-s.reader: // a nil channel blocks
		s.reader = nil
	default:
	}
}

// stopReader stops the reader, if any, and keeps the data that it has read.
func (s *socket) stopReader() {
	if !s.hasReader() {
		return
	}
	_ = s.conn.SetReadDeadline(past()) // an error means that the connection is closed, which stops the reader too
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

// past returns a time in the past.
func past() time.Time { return time.Unix(1, 0) }

// shutdown closes the connection for writing, if how includes that.
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
