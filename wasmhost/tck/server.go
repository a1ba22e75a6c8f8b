package tck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Loopback is the address on which the kit's own servers listen.
const Loopback = "127.0.0.1"

// behaviour handles one connection or one datagram. Data written to conn is sent back to the
// sender.
type behaviour func(ctx context.Context, conn net.Conn)

// server listens on one port, for TCP and UDP.
type server struct {
	port    uint16
	tcp     net.Listener
	udp     net.PacketConn
	handle  behaviour
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup // accept and receive

	mu    sync.Mutex // guards conns
	conns *connGroup
}

// connGroup is the group of connections that a server accepted since it last closed all of them.
type connGroup struct {
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup
}

func (s *server) newConnGroup() *connGroup {
	g := &connGroup{}
	g.ctx, g.cancel = context.WithCancel(s.ctx)
	return g
}

// close closes the connections and waits for their handlers.
func (g *connGroup) close() {
	g.cancel()
	g.working.Wait()
}

// serve starts a server on a port that is free for both TCP and UDP.
func serve(b behaviour) (*server, error) {
	for range 10 {
		tcp, err := net.Listen("tcp", net.JoinHostPort(Loopback, "0"))
		if err != nil {
			return nil, fmt.Errorf("conformance kit: %w", err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err != nil {
			_ = tcp.Close() // another port is tried
			continue
		}
		s := &server{port: uint16(tcp.Addr().(*net.TCPAddr).Port), tcp: tcp, udp: udp, handle: b}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.conns = s.newConnGroup()
		s.working.Go(s.accept)
		s.working.Go(s.receive)
		return s, nil
	}
	return nil, errors.New("conformance kit: no port is free for both TCP and UDP")
}

// stop ends the server and waits for its goroutines.
func (s *server) stop() {
	s.cancel()
	_ = s.tcp.Close()
	_ = s.udp.Close()
	s.working.Wait()
	s.conns.close()
}

// closeConns closes all connections; the server continues to accept new ones.
func (s *server) closeConns() {
	s.mu.Lock()
	before := s.conns
	s.conns = s.newConnGroup()
	s.mu.Unlock()
	before.close()
}

func (s *server) accept() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		s.start(conn)
	}
}

// receive handles each datagram as a separate connection.
func (s *server) receive() {
	b := make([]byte, 64<<10)
	for {
		n, from, err := s.udp.ReadFrom(b)
		if err != nil {
			return
		}
		s.start(&datagram{PacketConn: s.udp, from: from, first: append([]byte{}, b[:n]...), over: s.ctx.Done()})
	}
}

func (s *server) start(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.conns
	g.working.Go(func() {
		defer conn.Close()
		stop := context.AfterFunc(g.ctx, func() { _ = conn.Close() }) // unblocks reads and writes
		defer stop()
		s.handle(g.ctx, conn)
	})
}

// datagram is one received datagram as a connection to its sender.
type datagram struct {
	net.PacketConn
	from  net.Addr
	first []byte
	over  <-chan struct{}
}

// Read returns the datagram, and nothing more until the server stops.
func (d *datagram) Read(b []byte) (int, error) {
	if d.first == nil {
		<-d.over
		return 0, io.EOF
	}
	n := copy(b, d.first)
	d.first = nil
	return n, nil
}

// Write sends a datagram back.
func (d *datagram) Write(b []byte) (int, error) { return d.WriteTo(b, d.from) }

// RemoteAddr returns the sender's address.
func (d *datagram) RemoteAddr() net.Addr { return d.from }

// Close does nothing, because the socket is shared.
func (d *datagram) Close() error { return nil }

// SetDeadline does nothing, because the socket is shared.
func (d *datagram) SetDeadline(time.Time) error { return nil }

// Echo starts a TCP and UDP server that sends back the data it receives: a healthy server for
// plugins whose settings can expect an echo. stop stops the server and waits for its goroutines.
func Echo() (port uint16, stop func(), err error) {
	s, err := serve(func(_ context.Context, conn net.Conn) {
		_, _ = io.Copy(conn, conn) // until the other side or the kit closes the connection
	})
	if err != nil {
		return 0, nil, err
	}
	return s.port, s.stop, nil
}

// closeAtOnce closes the connection at once.
func closeAtOnce(context.Context, net.Conn) {}

// silent reads everything and sends nothing.
func silent(_ context.Context, conn net.Conn) {
	_, _ = io.Copy(io.Discard, conn) // until the other side or the kit closes the connection
}

// garbage responds with pseudo-random bytes, always the same ones.
func garbage(ctx context.Context, conn net.Conn) {
	awaitRequest(conn)
	random := rand.NewChaCha8([32]byte{1})
	b := make([]byte, 1024)
	_, _ = random.Read(b) // never fails
	if _, err := conn.Write(b); err == nil {
		silent(ctx, conn)
	}
}

// otherProtocol responds like a web server to a malformed request.
func otherProtocol(_ context.Context, conn net.Conn) {
	awaitRequest(conn)
	fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
}

// awaitRequest waits briefly for the client to send data: in some protocols the server sends first.
func awaitRequest(conn net.Conn) {
	if d, ok := conn.(*datagram); ok {
		_, _ = d.Read(make([]byte, 64<<10))
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = conn.Read(make([]byte, 64<<10)) // the content does not matter
	_ = conn.SetReadDeadline(time.Time{})
}

// maxDatagrams bounds a flood over UDP, which has no flow control.
const maxDatagrams = 100

// flood sends an endless response.
func flood(ctx context.Context, conn net.Conn) {
	awaitRequest(conn)
	b := make([]byte, 1024)
	for i := range b {
		b[i] = "0123456789abcde\n"[i%16]
	}
	_, packets := conn.(*datagram)
	for n := 0; ctx.Err() == nil && (!packets || n < maxDatagrams); n++ {
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}

// relay describes how the response of a real server is changed.
type relay struct {
	bytewise bool          // each byte is sent separately
	delay    time.Duration // before the first byte
	max      int           // bytes after which it is truncated; 0 for no limit
}

// relayTo relays connections to a real server.
func relayTo(address string, r relay) behaviour {
	return func(ctx context.Context, conn net.Conn) {
		network := "tcp"
		if _, ok := conn.(*datagram); ok {
			network = "udp"
		}
		var dialer net.Dialer
		real, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return
		}
		defer real.Close()
		stop := context.AfterFunc(ctx, func() { _ = real.Close() }) // unblocks reads and writes
		defer stop()
		var asking sync.WaitGroup
		asking.Go(func() {
			_, _ = io.Copy(real, conn) // until one side closes its connection
			closeWrite(real)
		})
		r.respond(ctx, conn, real)
		_ = conn.Close()
		_ = real.Close() // unblocks the copying
		asking.Wait()
	}
}

// closeWrite signals the end of the request to the real server.
func closeWrite(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.CloseWrite() // it may be closed already
	}
}

func (r relay) respond(ctx context.Context, conn, real net.Conn) {
	b := make([]byte, 64<<10)
	for sent := 0; r.max == 0 || sent < r.max; {
		n, err := real.Read(b)
		if r.max > 0 {
			n = min(n, r.max-sent)
		}
		if sent == 0 && !wait(ctx, r.delay) {
			return
		}
		if !r.send(ctx, conn, b[:n]) || err != nil {
			return
		}
		sent += n
	}
}

// A pause follows each of the first bytes that are sent one by one, or they would arrive together.
const (
	pause  = 2 * time.Millisecond
	pauses = 20
)

func (r relay) send(ctx context.Context, conn net.Conn, b []byte) bool {
	_, packet := conn.(*datagram)
	if !r.bytewise || packet {
		_, err := conn.Write(b)
		return err == nil
	}
	for i := range b {
		if _, err := conn.Write(b[i : i+1]); err != nil || i < pauses && !wait(ctx, pause) {
			return false
		}
	}
	return true
}

// wait waits for d. It returns false if ctx is done first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
