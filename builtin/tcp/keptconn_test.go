package tcpprobe

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// pair returns both ends of a connection.
func pair(t *testing.T, network, address string) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err = net.Dial(network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// secured returns both ends of a TLS connection over another connection.
func secured(t *testing.T, client, server net.Conn) (*tls.Conn, *tls.Conn) {
	t.Helper()
	authority := dialtest.NewAuthority(t)
	outside := tls.Server(server, &tls.Config{Certificates: []tls.Certificate{authority.Sign(t, time.Hour, "db")}})
	inside := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
	done := make(chan error)
	go func() { done <- outside.Handshake() }()
	if err := inside.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return inside, outside
}

func kept(t *testing.T, conn net.Conn) (c *keptConn, woken chan struct{}) {
	c, woken = keepConn(conn, ""), make(chan struct{}, 10)
	t.Cleanup(c.close)
	c.watch.Arm(func() { woken <- struct{}{} })
	return c, woken
}

func TestTheEndOfAKeptConnectionIsReportedWithItsReason(t *testing.T) {
	tests := map[string]struct {
		open func(t *testing.T) (client, server net.Conn)
		want []probe.Reason // after a close, and after a reset
	}{
		"tcp": {func(t *testing.T) (net.Conn, net.Conn) { return pair(t, "tcp", "127.0.0.1:0") },
			[]probe.Reason{probe.ReasonTCPClosed, probe.ReasonTCPReset}},
		"tls": {func(t *testing.T) (net.Conn, net.Conn) {
			client, server := pair(t, "tcp", "127.0.0.1:0")
			return secured(t, client, server)
		}, []probe.Reason{probe.ReasonTCPClosed, probe.ReasonTCPReset}},
		"unix": {func(t *testing.T) (net.Conn, net.Conn) {
			return pair(t, "unix", filepath.Join(testsync.SocketDir(t), "s"))
		},
			[]probe.Reason{probe.ReasonTCPClosed}},
	}
	for name, test := range tests {
		for i, want := range test.want {
			t.Run(name+" "+string(want), func(t *testing.T) {
				client, server := test.open(t)
				c, woken := kept(t, client)
				if _, err := io.WriteString(server, "chatter"); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if err := c.endError(); err != nil {
						t.Fatalf("while it is open: %v", err)
					}
				}
				if i == 1 {
					nonblock.Transport(server).(*net.TCPConn).SetLinger(0)
					server = nonblock.Transport(server) // without TLS's close_notify
				}
				server.Close()
				testsync.Receive(t, "the end", woken)
				if known := dial.Classify(t.Context(), dial.Transferring, c.endError()); known.Reason != want {
					t.Errorf("got %q, %v, want %q", known.Reason, known, want)
				}
				if len(woken) != 0 {
					t.Error("the end was reported twice")
				}
			})
		}
	}
}

// A peer that sends without end only fills this side's buffers, until an attempt empties them. The end of the connection comes
// after the sent data.
func TestAPeerThatSendsWithoutEndIsReadFromByAttemptsOnly(t *testing.T) {
	client, server := pair(t, "tcp", "127.0.0.1:0")
	c, woken := kept(t, client)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer server.Close()
		server.Write(slices.Repeat([]byte("chatter\n"), 1<<20))
	}()
	var err error
	testsync.Until(t, "the end", func() bool {
		err = c.endError()
		return err != nil
	})
	<-sent
	if err != io.EOF {
		t.Errorf("got %v, want the end", err)
	}
	testsync.Receive(t, "the end", woken)
}

func TestWithoutAWatchAnAttemptFindsTheEnd(t *testing.T) {
	client, server := pair(t, "tcp", "127.0.0.1:0")
	c := keepConn(client, "")
	c.watch.Remove()
	c.watch = nil
	if _, err := io.WriteString(server, "chatter"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := c.endError(); err != nil {
			t.Fatalf("while it is open: %v", err)
		}
	}
	server.Close()
	var err error
	testsync.Until(t, "the end", func() bool {
		err = c.endError()
		return err != nil
	})
	if err != io.EOF {
		t.Errorf("got %v", err)
	}
}

// stuckConn is a connection whose Read returns only when it is closed.
type stuckConn struct {
	net.Conn
	reading, closed chan struct{}
}

func (c stuckConn) Read([]byte) (int, error) {
	close(c.reading)
	<-c.closed
	return 0, net.ErrClosed
}

func (c stuckConn) Close() error {
	close(c.closed)
	return c.Conn.Close()
}

func TestCloseDoesNotWaitForAnAttemptThatReads(t *testing.T) {
	client, server := pair(t, "tcp", "127.0.0.1:0")
	c := keepConn(client, "db:1")
	if c.watch == nil {
		t.Skip("connections cannot be watched on this system")
	}
	server.Close()
	testsync.Until(t, "the end", c.watch.Ended)
	stuck := stuckConn{client, make(chan struct{}), make(chan struct{})}
	c.conn = stuck
	h := &keepAliveHandler{conn: c}
	results := make(chan probe.Result, 1)
	go func() {
		result, _ := h.check("db:1")
		results <- result
	}()
	testsync.Receive(t, "the read", stuck.reading)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		h.Close()
	}()
	testsync.Receive(t, "the end of Close", closed)
	if got := testsync.Receive(t, "the result", results); got.Outcome != probe.Unknown || got.Reason != probe.ReasonStopped {
		t.Errorf("got %+v, although the connection was closed on this side", got)
	}
}
