package tcpprobe_test

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
)

func TestAHalfOpenAttemptIsNeverAccepted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("half_open works on Linux only")
	}
	listener := listen(t, "tcp", "127.0.0.1:0").(*net.TCPListener)
	target := targetOf(listener.Addr())
	h := handler(t, tcpprobe.Config{Port: "db", HalfOpen: true})
	slow := 0
	for range 200 {
		start := time.Now()
		wantResult(t, h.Probe(t.Context(), target), probe.Success, "")
		// The kernel delays its ACK for only 40 to 200 ms.
		if time.Since(start) > 30*time.Millisecond {
			slow++
		}
	}
	if got := accepted(t, listener); got > slow {
		t.Errorf("%d of 200 half-open attempts were accepted, and %d were slow enough for it", got, slow)
	}
	wantResult(t, attempt(t, tcpprobe.Config{Port: "db"}, target, plenty), probe.Success, "")
	if got := accepted(t, listener); got != 1 {
		t.Errorf("%d plain attempts were accepted, want 1", got)
	}
}

// accepted counts the connections that wait to be accepted. On loopback they are there before the attempt has finished.
func accepted(t *testing.T, listener *net.TCPListener) int {
	t.Helper()
	for n := 0; ; n++ {
		listener.SetDeadline(time.Now().Add(short))
		conn, err := listener.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
}

func TestAHalfOpenAttemptIsRefusedAtAClosedPort(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("half_open works on Linux only")
	}
	listener := listen(t, "tcp", "127.0.0.1:0")
	target := targetOf(listener.Addr())
	listener.Close()
	got := attempt(t, tcpprobe.Config{Port: "db", HalfOpen: true, SourceAddress: "127.0.0.9"}, target, plenty)
	wantResult(t, got, probe.Failure, probe.ReasonTCPRefused)
}
