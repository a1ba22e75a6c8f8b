package tcpprobe_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// peers is a server that counts its connections and can close them all.
type peers struct {
	listener net.Listener
	accepted atomic.Int32
	conns    chan net.Conn
}

func newPeers(t *testing.T) *peers {
	p := &peers{listener: listen(t, "tcp", "127.0.0.1:0"), conns: make(chan net.Conn, 10)}
	go p.accept()
	return p
}

func (p *peers) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		p.conns <- conn
	}
}

// keepAlive makes attempts that keep their connection, and counts the calls of wake.
type keepAlive struct {
	handler probe.WakingHandler
	target  probe.Target
	wakes   chan struct{}
}

func newKeepAlive(t *testing.T, c tcpprobe.Config, target probe.Target) *keepAlive {
	c.Port = "db"
	if c.KeepAlive == nil {
		c.KeepAlive = &tcpprobe.KeepAlive{}
	}
	h, err := tcpprobe.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return keepAliveOf(t, h, target)
}

func keepAliveOf(t *testing.T, h probe.Handler, target probe.Target) *keepAlive {
	k := &keepAlive{h.(probe.WakingHandler), target, make(chan struct{}, 100)}
	t.Cleanup(k.close)
	return k
}

func (k *keepAlive) close() { k.handler.(io.Closer).Close() }

func (k *keepAlive) attempt(t *testing.T) probe.Result {
	t.Helper()
	a := nonblock.Attempt{Target: k.target}
	if k.handler.(nonblock.Stepper).Step(&a) == nonblock.StepDone {
		return a.Result
	}
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	return k.handler.ProbeWaking(ctx, k.target, func() { k.wakes <- struct{}{} })
}

func (k *keepAlive) woken(t *testing.T) {
	t.Helper()
	select {
	case <-k.wakes:
	case <-time.After(plenty):
		t.Fatal("the handler did not wake its probe")
	}
}

func TestAConnectionIsKeptAndItsEndWakesTheProbe(t *testing.T) {
	server := newPeers(t)
	k := newKeepAlive(t, tcpprobe.Config{}, targetOf(server.listener.Addr()))
	wantResult(t, k.attempt(t), probe.Success, "")
	conn := <-server.conns
	for range 5 {
		wantResult(t, k.attempt(t), probe.Success, "")
		if a := (nonblock.Attempt{Target: k.target}); k.handler.(nonblock.Stepper).Step(&a) != nonblock.StepDone && runtime.GOOS == "linux" {
			t.Error("an attempt over an open connection needs a goroutine")
		}
	}
	if got := server.accepted.Load(); got != 1 {
		t.Errorf("%d connections for 6 attempts", got)
	}
	conn.Close()
	k.woken(t)
	got := k.attempt(t)
	wantResult(t, got, probe.Failure, probe.ReasonTCPClosed)
	if !strings.Contains(got.Detail, "the connection was open for") {
		t.Errorf("it says %q", got.Detail)
	}
	wantResult(t, k.attempt(t), probe.Success, "") // over a new connection
	(<-server.conns).(*net.TCPConn).SetLinger(0)
}

func TestEachProbeKeepsAConnectionOfItsOwn(t *testing.T) {
	server := newPeers(t)
	readiness := newKeepAlive(t, tcpprobe.Config{}, targetOf(server.listener.Addr()))
	liveness := keepAliveOf(t, readiness.handler.(probe.StatefulHandler).ForProbe(), readiness.target)
	for _, k := range []*keepAlive{readiness, liveness} {
		wantResult(t, k.attempt(t), probe.Success, "")
	}
	for range 2 {
		(<-server.conns).Close()
	}
	for _, k := range []*keepAlive{readiness, liveness} {
		k.woken(t)
		wantResult(t, k.attempt(t), probe.Failure, probe.ReasonTCPClosed)
		wantResult(t, k.attempt(t), probe.Success, "")
	}
	readiness.close()
	wantResult(t, liveness.attempt(t), probe.Success, "")
	for range 2 {
		<-server.conns
	}
	if got := server.accepted.Load(); got != 4 {
		t.Errorf("%d connections, want 4", got)
	}
}

func TestTheReasonOfAResetIsReported(t *testing.T) {
	server := newPeers(t)
	k := newKeepAlive(t, tcpprobe.Config{}, targetOf(server.listener.Addr()))
	wantResult(t, k.attempt(t), probe.Success, "")
	conn := (<-server.conns).(*net.TCPConn)
	conn.SetLinger(0)
	conn.Close()
	k.woken(t)
	wantResult(t, k.attempt(t), probe.Failure, probe.ReasonTCPReset)
}

func TestAKeptConnectionFollowsItsTarget(t *testing.T) {
	first, second := newPeers(t), newPeers(t)
	k := newKeepAlive(t, tcpprobe.Config{}, targetOf(first.listener.Addr()))
	wantResult(t, k.attempt(t), probe.Success, "")
	k.target = targetOf(second.listener.Addr())
	wantResult(t, k.attempt(t), probe.Success, "")
	wantEnd(t, <-first.conns)
	<-second.conns
	k.target.Ports = nil
	wantResult(t, k.attempt(t), probe.Unknown, probe.ReasonNoPort)
}

func TestAConnectionToAUnixSocketIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s")
	server := &peers{listener: listen(t, "unix", file), conns: make(chan net.Conn, 10)}
	go server.accept()
	h, err := tcpprobe.New(tcpprobe.Config{UnixSocket: file, KeepAlive: &tcpprobe.KeepAlive{}})
	if err != nil {
		t.Fatal(err)
	}
	k := keepAliveOf(t, h, probe.Target{Name: "db"})
	for range 3 {
		wantResult(t, k.attempt(t), probe.Success, "")
	}
	<-server.conns
	if n := server.accepted.Load(); n != 1 {
		t.Errorf("3 attempts have made %d connections, want one", n)
	}
}

// wantEnd waits for the other side to close the connection.
func wantEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(plenty))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestCloseEndsAKeptConnectionWithoutAWake(t *testing.T) {
	server := newPeers(t)
	k := newKeepAlive(t, tcpprobe.Config{}, targetOf(server.listener.Addr()))
	wantResult(t, k.attempt(t), probe.Success, "")
	k.close()
	wantEnd(t, <-server.conns)
	wantResult(t, k.attempt(t), probe.Success, "") // one that was in progress
	wantEnd(t, <-server.conns)
	if len(k.wakes) != 0 {
		t.Errorf("it woke its probe %d times", len(k.wakes))
	}
}

func TestSendAndExpectApplyOnceToAKeptConnection(t *testing.T) {
	listener := listen(t, "tcp", "127.0.0.1:0")
	var greeted atomic.Int32
	serve(t, listener, func(conn net.Conn) {
		b := make([]byte, 100)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			greeted.Add(1)
			conn.Write([]byte("re: " + string(b[:n]) + strings.Repeat("chatter", 1000)))
		}
	})
	k := newKeepAlive(t, tcpprobe.Config{Send: "hello", Expect: "re: hello"}, targetOf(listener.Addr()))
	for range 3 {
		wantResult(t, k.attempt(t), probe.Success, "")
	}
	if got := greeted.Load(); got != 1 {
		t.Errorf("greeted %d times", got)
	}
}

func TestAConnectionWithAnUnexpectedResponseIsNotKept(t *testing.T) {
	listener := listen(t, "tcp", "127.0.0.1:0")
	serve(t, listener, func(conn net.Conn) { conn.Write([]byte("sorry")) })
	k := newKeepAlive(t, tcpprobe.Config{Expect: "ready"}, targetOf(listener.Addr()))
	for range 2 {
		wantResult(t, k.attempt(t), probe.Failure, probe.ReasonTCPExpect)
	}
}

func TestKeepAliveIsChecked(t *testing.T) {
	cases := []struct {
		field string
		c     tcpprobe.Config
	}{
		{"half_open", tcpprobe.Config{HalfOpen: true, KeepAlive: &tcpprobe.KeepAlive{}}},
		{"keepalive.idle", tcpprobe.Config{KeepAlive: &tcpprobe.KeepAlive{Idle: time.Millisecond}}},
		{"keepalive.idle", tcpprobe.Config{KeepAlive: &tcpprobe.KeepAlive{Idle: 1500 * time.Millisecond}}},
		{"keepalive.interval", tcpprobe.Config{KeepAlive: &tcpprobe.KeepAlive{Interval: 24 * time.Hour}}},
		{"keepalive.count", tcpprobe.Config{KeepAlive: &tcpprobe.KeepAlive{Count: 128}}},
		{"keepalive.count", tcpprobe.Config{KeepAlive: &tcpprobe.KeepAlive{Count: -1}}},
	}
	for _, c := range cases {
		c.c.Port = "80"
		_, err := tcpprobe.New(c.c)
		if err == nil || !strings.HasPrefix(err.Error(), c.field+" ") {
			t.Errorf("%+v: got %v, want an error about %s", c.c.KeepAlive, err, c.field)
		}
	}
}

// A server that restarts between attempts is up in each of them, but loses its connections each time.
func TestConnectionsThatEndTooOftenAreAWarning(t *testing.T) {
	server := newPeers(t)
	k := newKeepAlive(t, tcpprobe.Config{MaxEnds: 2}, targetOf(server.listener.Addr()))
	for n := range 4 {
		got := k.attempt(t)
		if isWarning := n > 2; (got.Outcome == probe.Warning) != isWarning || isWarning &&
			(got.Reason != probe.ReasonTCPClosed || !strings.HasPrefix(got.Detail, "the connection ended 3 times in ") || !strings.HasSuffix(got.Detail, "max_ends is 2")) {
			t.Errorf("after %d ends: got %v %s: %s", n, got.Outcome, got.Reason, got.Detail)
		}
		(<-server.conns).Close()
		k.woken(t)
		wantResult(t, k.attempt(t), probe.Failure, probe.ReasonTCPClosed)
	}
}
