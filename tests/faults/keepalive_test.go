//go:build linux

package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// A peer that is alive answers keepalive packets, one that has crashed does not, one that has rebooted does not know the
// connection, and one that is unreachable has no route (RFC 1122, section 4.2.3.6; TCP/IP Illustrated, volume 1, chapter 17).
func TestEachStateOfAKeptPeerHasAReasonOfItsOwn(t *testing.T) {
	tier.CI(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	alive := keep(t, 2)
	t.Run("others", func(t *testing.T) {
		for _, state := range []struct {
			name    string
			packets int // unanswered packets after which the system gives up
			enter   func(t *testing.T, p *peer)
			reason  probe.Reason
		}{
			{"crashed", 2, crash, probe.ReasonTCPTimeout},
			{"rebooted", 100, reboot, probe.ReasonTCPReset}, // enough until it responds again
			{"unreachable", 2, cutOff, probe.ReasonTCPUnreachable},
			{"forgotten by a firewall", 2, forget, probe.ReasonTCPClosed},
		} {
			t.Run(state.name, func(t *testing.T) {
				t.Parallel()
				p := keep(t, state.packets)
				state.enter(t, p)
				testsync.Receive(t, "the end of the connection", p.woken)
				if r := p.attempt(t); r.Outcome != probe.Failure || r.Reason != state.reason {
					t.Errorf("got %+v, want %q", r, state.reason)
				}
			})
		}
	})
	// By now this peer has answered as many packets as the others were sent.
	if r := alive.attempt(t); r.Outcome != probe.Success || len(alive.woken) > 0 {
		t.Errorf("alive: got %+v, woken %d times", r, len(alive.woken))
	}
}

// peer is one server and a probe that keeps a connection to it.
type peer struct {
	port    int
	conn    *net.TCPConn // the server's end
	handler probe.WakingHandler
	woken   chan struct{}
}

// keep makes an attempt that keeps its connection. The system gives up on a silent peer after that many packets, one per second,
// plus one second.
func keep(t *testing.T, packets int) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &peer{port: l.Addr().(*net.TCPAddr).Port, woken: make(chan struct{}, 10)}
	h, err := tcpprobe.New(tcpprobe.Config{
		Port: strconv.Itoa(p.port), KeepAlive: &tcpprobe.KeepAlive{Idle: time.Second, Interval: time.Second, Count: packets},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.handler = h.(probe.WakingHandler)
	t.Cleanup(func() { h.(io.Closer).Close() })
	if r := p.attempt(t); r.Outcome != probe.Success {
		t.Fatalf("got %+v", r)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.conn = conn.(*net.TCPConn)
	return p
}

func (p *peer) attempt(t *testing.T) probe.Result {
	ctx, cancel := context.WithTimeout(t.Context(), testsync.Timeout)
	defer cancel()
	return p.handler.ProbeWaking(ctx, probe.Target{Name: "db", Address: "127.0.0.1"}, func() { p.woken <- struct{}{} })
}

// crash drops all packets to the peer.
func crash(t *testing.T, p *peer) {
	faulttest.Filter(t, fmt.Sprintf("chain c { type filter hook input priority 0; tcp dport %d drop; }", p.port))
}

// reboot makes the peer lose the connection silently.
func reboot(t *testing.T, p *peer) {
	speak := faulttest.Filter(t, fmt.Sprintf("chain c { type filter hook output priority 0; tcp sport %d drop; }", p.port))
	_ = p.conn.SetLinger(0) // closes it by a reset, without retransmissions
	p.conn.Close()
	speak()
}

// forget drops all packets of the connection, but not those of other connections.
func forget(t *testing.T, p *peer) {
	from := p.conn.RemoteAddr().(*net.TCPAddr).Port
	faulttest.Filter(t, fmt.Sprintf("chain c { type filter hook input priority 0; tcp sport %d tcp dport %d drop; }", from, p.port))
}

// cutOff makes a router report that the peer is unreachable.
func cutOff(t *testing.T, p *peer) {
	faulttest.Filter(t, fmt.Sprintf("chain c { type filter hook input priority 0; tcp dport %d reject with icmp type host-unreachable; }", p.port))
}
