package tcpprobe

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
)

func TestKeepAliveSetsTheSocketOptions(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	h, err := New(Config{Port: port, KeepAlive: &KeepAlive{Idle: 7 * time.Second, Count: 9}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.(io.Closer).Close()
	if got := h.Probe(t.Context(), probe.Target{Name: "web", Address: "127.0.0.1"}); got.Outcome != probe.Success {
		t.Fatalf("got %+v", got)
	}
	raw, err := h.(*keepAliveHandler).conn.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		for _, o := range []struct{ level, option, want int }{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 1},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 7},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 5},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 9},
		} {
			if got, err := syscall.GetsockoptInt(int(fd), o.level, o.option); got != o.want || err != nil {
				t.Errorf("option %d is %d, %v, want %d", o.option, got, err, o.want)
			}
		}
	})
}
