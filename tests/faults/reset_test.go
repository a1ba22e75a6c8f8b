//go:build linux

package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// attempts is the number of attempts that are made while resets are lost.
const attempts = 60

// A worker waits for its client until the connection ends, so it would wait forever if the connection ended with a lost reset.
func TestLostResetsLeaveNoWorkerHanging(t *testing.T) {
	tier.CI(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	for name, full := range map[string]func(port string) (probe.Handler, error){
		"tcp": func(port string) (probe.Handler, error) { return tcpprobe.New(tcpprobe.Config{Port: port}) },
		"expect": func(port string) (probe.Handler, error) {
			return tcpprobe.New(tcpprobe.Config{Port: port, Send: "GET / HTTP/1.1\r\n\r\n", Expect: "200 OK"})
		},
		"http": func(port string) (probe.Handler, error) { return httpprobe.New(httpprobe.Config{Port: port}) },
	} {
		for _, address := range []string{"127.0.0.1", "localhost"} { // the first without a goroutine, the second with one
			t.Run(name+" "+address, func(t *testing.T) {
				t.Parallel()
				s := serveWorkers(t)
				h, err := full(s.port)
				if err != nil {
					t.Fatal(err)
				}
				probeOften(t, h, address)
				testsync.Until(t, "the workers to be free", func() bool { return s.accepted.Load() >= attempts && s.busy.Load() == 0 })
			})
		}
	}
}

// A half-open attempt only leaves an entry in the system's table, until the system has sent its SYN-ACK the maximum number of
// times.
func TestAHalfOpenAttemptWhoseResetIsLostIsNotAccepted(t *testing.T) {
	tier.CI(t)
	if !faulttest.InNamespaces(t) {
		return
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_synack_retries", []byte("1"), 0); err != nil { // in this namespace; the default is 5
		t.Skip("cannot set tcp_synack_retries: ", err)
	}
	s := serveWorkers(t)
	h, err := tcpprobe.New(tcpprobe.Config{Port: s.port, HalfOpen: true})
	if err != nil {
		t.Fatal(err)
	}
	slow := probeOften(t, h, "127.0.0.1")
	most := 0
	testsync.Until(t, "the end of the half-open connections", func() bool {
		n := s.halfOpen(t)
		most = max(most, n)
		return most > 0 && n == 0
	})
	if got := int(s.accepted.Load()); got > slow {
		t.Errorf("%d of %d attempts were accepted, and %d were slow enough for it", got, attempts, slow)
	}
	t.Logf("%d half-open connections at a time, %d accepted", most, s.accepted.Load())
}

// workers is a server with a worker for each connection. All resets to it are dropped.
type workers struct {
	port     string
	accepted atomic.Int64
	busy     atomic.Int64
}

func serveWorkers(t *testing.T) *workers {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &workers{port: strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}
	faulttest.Filter(t, "chain c { type filter hook input priority 0; tcp dport "+s.port+" tcp flags & rst == rst drop; }")
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			s.busy.Add(1)
			go s.work(conn)
		}
	}()
	return s
}

// work responds to the client's requests until the client closes the connection.
func (s *workers) work(conn net.Conn) {
	defer s.busy.Add(-1)
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}
}

// halfOpen counts the connections of the server whose handshake is not complete.
func (s *workers) halfOpen(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(s.port)
	const synReceived = "03"
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == synReceived {
			n++
		}
	}
	return n
}

// probeOften runs an engine until each of many targets has been probed, and all attempts have finished. It returns the number of
// attempts that took so long that the system may have completed their handshake.
func probeOften(t *testing.T, h probe.Handler, address string) (slow int) {
	t.Helper()
	e, set := engine.New(engine.Config{}), probe.Set{}
	for i := range attempts {
		target := probe.Target{Name: "web-" + strconv.Itoa(i), Address: address}
		rule := probe.Rule{Period: time.Hour, Timeout: testsync.Timeout}
		set[probe.ID{Target: target.Name, Kind: probe.Readiness}] = probe.Probe{Rule: rule, Target: target, Handler: h, HandlerName: "full"}
	}
	if _, err := e.Apply(set); err != nil {
		t.Fatal(err)
	}
	for id := range set {
		e.Report(probe.Instance{Target: id.Target, ID: "1", Phase: probe.Running, Since: time.Now()})
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	testsync.Until(t, "all attempts", func() bool {
		probed := 0
		for s := range e.All() {
			if s.Attempts[probe.Success] > 0 {
				probed++
			}
		}
		return probed == attempts && e.Stats().InFlight == 0
	})
	for s := range e.All() {
		if s.Result.Took > 30*time.Millisecond {
			slow++
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return slow
}
