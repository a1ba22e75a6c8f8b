package httpprobe_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// serveCounted starts a server and counts its connections.
func serveCounted(t *testing.T, f http.HandlerFunc) (probe.Target, *httptest.Server, *atomic.Int32) {
	t.Helper()
	conns := new(atomic.Int32)
	s := httptest.NewUnstartedServer(f)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return targetOf(s.Listener.Addr()), s, conns
}

func TestAConnectionIsReusedOnlyIfConfigured(t *testing.T) {
	for reuse, want := range map[bool]int32{false: 5, true: 1} {
		target, _, conns := serveCounted(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
		h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: reuse})
		for range 5 {
			wantResult(t, h.Probe(t.Context(), target), probe.Success, "")
		}
		if got := conns.Load(); got != want {
			t.Errorf("with reuse_connection = %v there were %d connections, want %d", reuse, got, want)
		}
	}
}

func TestAKeptConnectionThatTheServerClosedIsNoFailure(t *testing.T) {
	target, server, conns := serveCounted(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	h := handler(t, httpprobe.Config{Port: "web", Method: "POST", Body: "hello", ReuseConnection: true})
	for range 5 {
		wantResult(t, h.Probe(t.Context(), target), probe.Success, "")
		server.CloseClientConnections()
	}
	if got := conns.Load(); got != 5 {
		t.Errorf("there were %d connections, want 5", got)
	}
}

func TestAKeptConnectionHasNoConnectTiming(t *testing.T) {
	target := serve(t, func(http.ResponseWriter, *http.Request) {})
	h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: true})
	h.Probe(t.Context(), target)
	got := h.Probe(t.Context(), target)
	if got.Timings.Connect != 0 || got.Timings.FirstByte <= 0 {
		t.Errorf("got the timings %+v", got.Timings)
	}
}

func TestCloseClosesKeptConnections(t *testing.T) {
	closed := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	s.Start()
	defer s.Close()
	h := handler(t, httpprobe.Config{Port: "web", ReuseConnection: true})
	wantResult(t, h.Probe(t.Context(), targetOf(s.Listener.Addr())), probe.Success, "")
	h.Close()
	select {
	case <-closed:
	case <-time.After(plenty):
		t.Error("the connection is still open")
	}
}

func TestAttemptsLeaveNoGoroutineBehind(t *testing.T) {
	tier.Slow(t)
	ca := dialtest.NewAuthority(t)
	secure := httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: ca.File}}
	cert := ca.Sign(t, time.Hour, "127.0.0.1")
	tests := map[string]struct {
		config  httpprobe.Config
		target  func(t *testing.T) probe.Target
		timeout time.Duration
		outcome probe.Outcome
	}{
		"http":       {httpprobe.Config{Port: "web"}, func(t *testing.T) probe.Target { return serve(t, func(http.ResponseWriter, *http.Request) {}) }, plenty, probe.Success},
		"https":      {secure, func(t *testing.T) probe.Target { return serveTLS(t, serverConfig(cert), false) }, plenty, probe.Success},
		"http/2":     {secure, func(t *testing.T) probe.Target { return serveTLS(t, serverConfig(cert), true) }, plenty, probe.Success},
		"late":       {httpprobe.Config{Port: "web"}, func(t *testing.T) probe.Target { return serveRaw(t, hang) }, 10 * time.Millisecond, probe.Failure},
		"late https": {secure, func(t *testing.T) probe.Target { return serveRaw(t, hang) }, 10 * time.Millisecond, probe.Failure},
		"stalled":    {httpprobe.Config{Port: "web"}, func(t *testing.T) probe.Target { return serve(t, brokenBodies["stalled"]) }, 10 * time.Millisecond, probe.Failure},
		"redirects":  {httpprobe.Config{Port: "web", Path: "/10"}, bounce, plenty, probe.Failure},
	}
	for name, test := range tests {
		for _, reuse := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				target := test.target(t)
				test.config.ReuseConnection = reuse
				h := handler(t, test.config)
				before := runtime.NumGoroutine()
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
					if got := h.Probe(ctx, target); got.Outcome != test.outcome {
						t.Errorf("got %+v", got)
					}
					cancel()
				}
				h.Close()
				waitForGoroutines(t, before)
			})
		}
	}
}

// hang reads until the probe closes the connection.
func hang(conn *net.TCPConn) { io.Copy(io.Discard, conn) }

// waitForGoroutines waits until there are at most n goroutines: those of a connection, including the server's, exit soon after it
// is closed.
func waitForGoroutines(t *testing.T, n int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			stacks := make([]byte, 1<<16)
			t.Logf("%s", stacks[:runtime.Stack(stacks, true)])
		}
	}()
	testsync.Until(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= n })
}
