package sandbox

import (
	"crypto/tls"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/wasmhost/abi"
	"github.com/sonde-probe/sonde/wasmhost/internal/grant"
)

// socket is a connection as a guest sees it: a descriptor that can be polled. Only
// the goroutine of the call that has it uses it, and for a while its pump.
type socket struct {
	conn     net.Conn
	dest     grant.Dest
	nonblock bool
	watch    *nonblock.Watch // nil until it is held

	readBy, writeBy time.Time // the guest's own deadlines; zero for none

	mu   sync.Mutex
	buf  []byte // room for what is read before the guest asks for it
	data []byte // the part of buf that the guest has not read yet
	err  error  // why nothing more will come: io.EOF or HostError; data comes first
	pump chan struct{}
}

// Sizes of socket.buf.
const (
	streamBuffer   = 4 << 10
	datagramBuffer = 1<<16 - 1
)

func (s *socket) datagram() bool { return s.dest.Network == "udp" }

// readable reports whether a read would not have to wait, and how much there is.
func (s *socket) readable() (n int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.data), len(s.data) > 0 || s.err != nil
}

// take copies what has been read already. It returns false when that is nothing.
func (s *socket) take(p []byte) (n int, err error, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.data) == 0 {
		return 0, s.err, s.err != nil
	}
	n = copy(p, s.data)
	if s.data = s.data[n:]; s.datagram() {
		s.data = nil // what does not fit of a datagram is lost
	}
	return n, nil, true
}

// fill waits for the connection and keeps what comes. A deadline that passes leaves
// no trace.
func (s *socket) fill() {
	if s.buf == nil {
		s.buf = make([]byte, streamBuffer)
		if s.datagram() {
			s.buf = make([]byte, datagramBuffer)
		}
	}
	n, err := s.conn.Read(s.buf)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = s.buf[:n]
	s.keep(n, err)
}

// keep remembers an error after which nothing will come.
func (s *socket) keep(n int, err error) {
	if n == 0 && err != nil && !isTimeout(err) {
		s.err = err
	}
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout() || err == os.ErrDeadlineExceeded
}

// pumping reports whether a goroutine reads from the connection.
func (s *socket) pumping() bool { return s.pump != nil }

// start lets a goroutine read from the connection once; it tells wake when it has.
func (s *socket) start(wake chan<- struct{}) {
	if s.pumping() {
		return
	}
	done := make(chan struct{})
	s.pump = done
	go func() {
		s.fill()
		close(done)
		select {
		case wake <- struct{}{}:
		default:
		}
	}()
}

// settle notices that the pump has ended.
func (s *socket) settle() {
	select {
	case <-s.pump: // nil blocks
		s.pump = nil
	default:
	}
}

// rest ends the pump, if there is one, without losing what it has read.
func (s *socket) rest() {
	if !s.pumping() {
		return
	}
	_ = s.conn.SetReadDeadline(past()) // an error says that it is closed, which ends it too
	<-s.pump
	s.pump = nil
}

// close closes the connection and waits for its pump.
func (s *socket) close() {
	s.watch.Remove()
	if secure, ok := s.conn.(*tls.Conn); ok {
		// It tells the peer, which may not listen.
		impatient := time.AfterFunc(farewell, func() { _ = secure.NetConn().Close() })
		defer impatient.Stop()
	}
	_ = s.conn.Close() // there is nothing to be done about an error
	s.rest()
}

// farewell is how long a TLS connection may take to say that it ends.
const farewell = 10 * time.Millisecond

// past is a time that has passed.
func past() time.Time { return time.Unix(1, 0) }

// shutdown tells the peer that nothing more will be sent.
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
