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

// loopback is where the kit's own servers listen.
const loopback = "127.0.0.1"

// behaviour is how a server treats one connection, or one datagram: conn returns
// datagrams that are written to the one who has sent the first.
type behaviour func(ctx context.Context, conn net.Conn)

// server listens on one port, for TCP and UDP.
type server struct {
	port    uint16
	tcp     net.Listener
	udp     net.PacketConn
	treat   behaviour
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup // of what listens

	mu  sync.Mutex
	now *lines
}

// lines are the connections that a server has had since it hung up last.
type lines struct {
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup
}

func (s *server) newLines() *lines {
	l := &lines{}
	l.ctx, l.cancel = context.WithCancel(s.ctx)
	return l
}

// end closes the connections and waits for what they do.
func (l *lines) end() {
	l.cancel()
	l.working.Wait()
}

// serve starts a server on a port that is free for both.
func serve(b behaviour) (*server, error) {
	for range 10 {
		tcp, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return nil, err
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err != nil {
			_ = tcp.Close() // another port is tried
			continue
		}
		s := &server{port: uint16(tcp.Addr().(*net.TCPAddr).Port), tcp: tcp, udp: udp, treat: b}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.now = s.newLines()
		s.working.Go(s.accept)
		s.working.Go(s.receive)
		return s, nil
	}
	return nil, errors.New("no port is free for TCP and UDP")
}

// stop ends the server and waits for what it does.
func (s *server) stop() {
	s.cancel()
	_ = s.tcp.Close() // nobody is connected to it any more
	_ = s.udp.Close()
	s.working.Wait()
	s.now.end()
}

// hangUp closes all connections, and goes on with new ones.
func (s *server) hangUp() {
	s.mu.Lock()
	before := s.now
	s.now = s.newLines()
	s.mu.Unlock()
	before.end()
}

func (s *server) accept() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		s.work(conn)
	}
}

// receive treats each datagram as a connection of its own.
func (s *server) receive() {
	b := make([]byte, 64<<10)
	for {
		n, from, err := s.udp.ReadFrom(b)
		if err != nil {
			return
		}
		s.work(&datagram{PacketConn: s.udp, from: from, first: append([]byte{}, b[:n]...), over: s.ctx.Done()})
	}
}

func (s *server) work(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.now
	l.working.Go(func() {
		defer conn.Close()
		stop := context.AfterFunc(l.ctx, func() { _ = conn.Close() }) // which ends reads and writes
		defer stop()
		s.treat(l.ctx, conn)
	})
}

// datagram is one datagram from somebody, and the way back.
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

// RemoteAddr returns who has sent the datagram.
func (d *datagram) RemoteAddr() net.Addr { return d.from }

// Close leaves the server's socket open, which is everybody's.
func (d *datagram) Close() error { return nil }

// SetDeadline does nothing, since the socket is everybody's.
func (d *datagram) SetDeadline(time.Time) error { return nil }

// Loopback is the address of Echo's server.
const Loopback = loopback

// Echo starts a server, for TCP and UDP, that sends back what it gets: one that is
// well for plugins whose settings can expect that. Stop ends it, and returns when
// nothing of it is left.
func Echo() (port uint16, stop func(), err error) {
	s, err := serve(echo)
	if err != nil {
		return 0, nil, err
	}
	return s.port, s.stop, nil
}

func echo(_ context.Context, conn net.Conn) {
	_, _ = io.Copy(conn, conn) // until the other side or the kit ends it
}

// closing closes at once.
func closing(context.Context, net.Conn) {}

// silent reads everything and says nothing.
func silent(_ context.Context, conn net.Conn) { drain(conn) }

func drain(conn net.Conn) {
	_, _ = io.Copy(io.Discard, conn) // until the other side or the kit ends it
}

// garbage answers with bytes that look random and are always the same.
func garbage(_ context.Context, conn net.Conn) {
	hear(conn)
	random := rand.NewChaCha8([32]byte{1})
	b := make([]byte, 1024)
	_, _ = random.Read(b) // never fails
	if _, err := conn.Write(b); err == nil {
		drain(conn)
	}
}

// otherProtocol answers as a web server does to what it cannot read.
func otherProtocol(_ context.Context, conn net.Conn) {
	hear(conn)
	fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
}

// hear waits for the other side to say something, though not for long: in some
// protocols the server speaks first.
func hear(conn net.Conn) {
	if d, ok := conn.(*datagram); ok {
		_, _ = d.Read(make([]byte, 64<<10))
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = conn.Read(make([]byte, 64<<10)) // whatever it is
	_ = conn.SetReadDeadline(time.Time{})
}

// maxDatagrams bounds a flood over UDP, which nothing holds back.
const maxDatagrams = 100

// flood answers without end.
func flood(ctx context.Context, conn net.Conn) {
	hear(conn)
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

// relay says what happens to what a real server answers.
type relay struct {
	bytewise bool          // each byte is sent on its own
	delay    time.Duration // before the first byte
	most     int           // bytes until it breaks off; 0 for all
}

// relayTo returns a server that stands before a real one.
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
		stop := context.AfterFunc(ctx, func() { _ = real.Close() }) // which ends reads and writes
		defer stop()
		var asking sync.WaitGroup
		asking.Go(func() {
			_, _ = io.Copy(real, conn) // until one side ends it
			half(real)
		})
		r.answer(ctx, conn, real)
		_ = conn.Close()
		_ = real.Close() // which ends the copying
		asking.Wait()
	}
}

// half tells the real server that nothing more comes.
func half(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.CloseWrite() // it may be closed already
	}
}

func (r relay) answer(ctx context.Context, conn, real net.Conn) {
	b := make([]byte, 64<<10)
	for sent := 0; r.most == 0 || sent < r.most; {
		n, err := real.Read(b)
		if r.most > 0 {
			n = min(n, r.most-sent)
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

// Between the first bytes of those that are sent one by one is a pause: they would
// arrive together otherwise.
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

// wait returns false when ctx was done before.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
