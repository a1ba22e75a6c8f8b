package sandbox

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// The options persist on the socket, so a connection that is held again needs no further system
// calls.
func TestAConnectionGetsTheSettingsOfKeepAlivePacketsOnce(t *testing.T) {
	i := newInstance(t)
	defer i.Close()
	i.sandbox.config.KeepAlive = net.KeepAliveConfig{Enable: true, Idle: 1000 * time.Second, Interval: time.Second, Count: 3}
	c := endedCall(i)
	c.life.pastDeadline, c.life.stopped, c.life.ctx = make(chan struct{}), make(chan struct{}), t.Context()
	defer c.finish()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.memory.WriteByte(0, 'k')
	fd := c.open.add(&socket{conn: conn, account: i.sandbox.account})
	wantIdle := func(want int) {
		t.Helper()
		if errno := c.network.hold(args{uint64(fd), 0, 1}); errno != 0 {
			t.Fatalf("hold: %d", errno)
		}
		if got := idleOf(t, conn.(*net.TCPConn)); got != want {
			t.Errorf("packets are sent after %ds, want %ds", got, want)
		}
	}
	wantIdle(1000)
	if err := conn.(*net.TCPConn).SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 500 * time.Second}); err != nil {
		t.Fatal(err)
	}
	s, ok := c.input.State.popConn("k")
	if !ok {
		t.Fatal("the connection is not held")
	}
	s.watch.Disarm()
	fd = c.open.add(s)
	wantIdle(500)
	c.input.State.Close()
}

// idleOf returns the idle time in seconds before the system sends a keepalive packet.
func idleOf(t *testing.T, conn *net.TCPConn) (seconds int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if failed := raw.Control(func(fd uintptr) {
		seconds, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
	}); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return seconds
}
