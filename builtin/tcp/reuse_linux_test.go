//go:build !386 && !s390x

package tcpprobe_test

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/nonblocktest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestAttemptsSendAndExpectOverAKeptConnection(t *testing.T) {
	tests := map[string]struct {
		answer func(conn net.Conn, n int) (stays bool) // responds to the n-th request of a connection
		conns  int32                                   // connections of six attempts
	}{
		"a server that stays": {func(conn net.Conn, n int) bool { io.WriteString(conn, "+PONG\r\n"); return true }, 1},
		"one that ends idle connections": {func(conn net.Conn, n int) bool {
			if n == 0 {
				io.WriteString(conn, "+PONG\r\n")
			}
			return n == 0
		}, 6},
		"one that says more": {func(conn net.Conn, n int) bool {
			io.WriteString(conn, "+PONG\r\n")
			io.WriteString(conn, "more\r\n")
			return true
		}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var conns atomic.Int32
			listener := listen(t, "tcp", "127.0.0.1:0")
			target := targetOf(listener.Addr())
			serve(t, listener, func(conn net.Conn) {
				conns.Add(1)
				b := make([]byte, 64)
				for n := 0; ; n++ {
					if _, err := conn.Read(b); err != nil || !test.answer(conn, n) {
						return
					}
				}
			})
			h, err := tcpprobe.New(tcpprobe.Config{Port: "db", Send: "PING\r\n", Expect: "PONG", ReuseConnection: true, KeepAlive: &tcpprobe.KeepAlive{Idle: 1000 * time.Second}})
			if err != nil {
				t.Fatal(err)
			}
			before := nonblocktest.Descriptors(t)
			own := h.(probe.StatefulHandler).ForProbe().(nonblock.Stepper)
			for range 6 {
				wantResult(t, nonblocktest.StepWaking(t, own, target, nil), probe.Success, "")
			}
			if got := conns.Load(); test.conns != 0 && got != test.conns {
				t.Errorf("six attempts took %d connections, want %d", got, test.conns)
			}
			if test.conns == 1 {
				dialtest.WaitForKeepAlive(t, target.Ports["db"], 1000)
			}
			wantResult(t, own.Probe(t.Context(), target), probe.Success, "")
			own.(io.Closer).Close()
			nonblocktest.WaitForDescriptors(t, before)
		})
	}
}

func TestTheEndOfAReusedConnectionWakesTheProbe(t *testing.T) {
	server := newPeers(t)
	target := targetOf(server.listener.Addr())
	h, err := tcpprobe.New(tcpprobe.Config{Port: "db", Send: "PING", Expect: "PONG", ReuseConnection: true})
	if err != nil {
		t.Fatal(err)
	}
	own := h.(probe.StatefulHandler).ForProbe().(nonblock.Stepper)
	defer own.(io.Closer).Close()
	var conn net.Conn
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		conn = <-server.conns
		io.ReadFull(conn, make([]byte, 4))
		io.WriteString(conn, "PONG")
	}()
	wakes := make(chan struct{}, 10)
	wantResult(t, nonblocktest.StepWaking(t, own, target, func() { wakes <- struct{}{} }), probe.Success, "")
	<-answered
	server.listener.Close()
	conn.Close()
	testsync.Receive(t, "the end of the connection", wakes)
	wantResult(t, nonblocktest.StepWaking(t, own, target, nil), probe.Failure, probe.ReasonTCPRefused)
}
