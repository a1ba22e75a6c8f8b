package httpprobe_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// serveRaw passes each connection to f and closes it afterwards.
func serveRaw(t testing.TB, f func(conn *net.TCPConn)) probe.Target {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				f(conn.(*net.TCPConn))
			}()
		}
	}()
	return targetOf(listener.Addr())
}

// skip reads the request's head.
func skip(conn net.Conn) { conn.Read(make([]byte, 4096)) }

func TestInvalidResponsesHaveReasons(t *testing.T) {
	tests := map[string]struct {
		serve  func(conn *net.TCPConn)
		reason probe.Reason
	}{
		"closed without an answer": {func(conn *net.TCPConn) { skip(conn) }, probe.ReasonTCPClosed},
		"closed at once":           {func(*net.TCPConn) {}, ""}, // a reset or a close, at random
		"closed in the head": {func(conn *net.TCPConn) {
			skip(conn)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
		}, probe.ReasonTCPClosed},
		"reset": {func(conn *net.TCPConn) {
			skip(conn)
			conn.SetLinger(0)
		}, probe.ReasonTCPReset},
		"not http": {func(conn *net.TCPConn) {
			io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n")
			skip(conn)
		}, probe.ReasonHTTPProtocol},
		"an endless head": {func(conn *net.TCPConn) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
			line := "X: " + strings.Repeat("x", 1000) + "\r\n"
			for err := error(nil); err == nil; {
				_, err = io.WriteString(conn, line)
			}
		}, probe.ReasonHTTPProtocol},
		"endless answers before the answer": {func(conn *net.TCPConn) {
			for err := error(nil); err == nil; {
				_, err = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n")
			}
		}, probe.ReasonHTTPProtocol},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := attempt(t, httpprobe.Config{Port: "web"}, serveRaw(t, test.serve), plenty)
			if test.reason == "" && (got.Reason == probe.ReasonTCPClosed || got.Reason == probe.ReasonTCPReset) {
				test.reason = got.Reason
			}
			wantResult(t, got, probe.Failure, test.reason)
		})
	}
}

func TestBytesBeforeTheRequestAreJudgedAndNotLogged(t *testing.T) {
	var logged bytes.Buffer
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	target := serveRaw(t, func(conn *net.TCPConn) {
		io.WriteString(conn, "220 hunter2 ESMTP\r\n")
		io.Copy(io.Discard, conn)
	})
	for _, reuse := range []bool{false, true} {
		for range 50 {
			got := attempt(t, httpprobe.Config{Port: "web", ReuseConnection: reuse}, target, plenty)
			wantResult(t, got, probe.Failure, probe.ReasonHTTPProtocol)
		}
	}
	if logged.Len() > 0 {
		t.Errorf("this was logged: %s", &logged)
	}
}

func TestATimeoutIsAFailure(t *testing.T) {
	tier.Slow(t)
	silent := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, reuse := range map[string]bool{"alone": false, "reused": true} {
		t.Run(name+", before the head", func(t *testing.T) {
			got := attempt(t, httpprobe.Config{Port: "web", ReuseConnection: reuse}, serve(t, silent), short)
			wantResult(t, got, probe.Failure, probe.ReasonHTTPTimeout)
		})
		t.Run(name+", in the handshake", func(t *testing.T) {
			target := serveRaw(t, func(conn *net.TCPConn) { io.Copy(io.Discard, conn) })
			got := attempt(t, httpprobe.Config{Port: "web", Scheme: "https", ReuseConnection: reuse}, target, short)
			wantResult(t, got, probe.Failure, probe.ReasonTLSTimeout)
		})
	}
}

func TestAClosedPortIsRefused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target := targetOf(listener.Addr())
	listener.Close()
	for name, reuse := range map[string]bool{"alone": false, "reused": true} {
		t.Run(name, func(t *testing.T) {
			got := attempt(t, httpprobe.Config{Port: "web", ReuseConnection: reuse}, target, plenty)
			wantResult(t, got, probe.Failure, probe.ReasonTCPRefused)
		})
	}
}

func TestWhatTheTargetLacksIsUnknown(t *testing.T) {
	tests := map[string]struct {
		config httpprobe.Config
		target probe.Target
		reason probe.Reason
		says   string
	}{
		"no address": {
			httpprobe.Config{Port: "80"}, probe.Target{Name: "shop"},
			probe.ReasonNoAddr, "host must be set, since target shop has no address",
		},
		"an address that is none": {
			httpprobe.Config{Port: "80"}, probe.Target{Name: "shop", Address: "a/b"},
			probe.ReasonNoAddr, `host must be set, since the address of target shop is "a/b"; it must be an IP address or a host name`,
		},
		"the address of no machine": {
			httpprobe.Config{Port: "80"}, probe.Target{Name: "shop", Address: "0.0.0.0"},
			probe.ReasonNoAddr, `host must be set, since the address of target shop is "0.0.0.0", which is not an address to connect to`,
		},
		"no ports": {
			httpprobe.Config{Port: "web"}, probe.Target{Name: "shop", Address: "127.0.0.1"},
			probe.ReasonNoPort, `port is "web", but target shop has no such port; it has no ports`,
		},
		"another port": {
			httpprobe.Config{Port: "wbe"}, probe.Target{Name: "shop", Address: "127.0.0.1", Ports: map[string]uint16{"web": 1, "admin": 2}},
			probe.ReasonNoPort, `port is "wbe", but target shop has no such port; its ports: admin, web`,
		},
		"a port that is 0": {
			httpprobe.Config{Port: "web"}, probe.Target{Name: "shop", Address: "127.0.0.1", Ports: map[string]uint16{"web": 0}},
			probe.ReasonNoPort, `port is "web", which target shop defines as 0; it must be from 1 to 65535`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := handler(t, test.config)
			wantResult(t, h.Probe(t.Context(), test.target), probe.Unknown, test.reason)
			if err := h.Check(test.target); err == nil || err.Error() != test.says {
				t.Errorf("Check says %v\nwant %s", err, test.says)
			}
		})
	}
}

func TestAHandlerKnowsItsEndpoint(t *testing.T) {
	target := probe.Target{Name: "shop", Address: "10.0.0.7", Ports: map[string]uint16{"web": 81}}
	for want, config := range map[string]httpprobe.Config{
		"10.0.0.7:80":     {Port: "80", Path: "/other"},
		"10.0.0.7:81":     {Port: "web"},
		"shop.example:81": {Port: "web", Host: "shop.example"},
		"/run/shop.sock":  {UnixSocket: "/run/shop.sock"},
		"":                {Port: "admin"},
	} {
		if got := handler(t, config).Endpoint(target); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestACompleteTargetPassesCheck(t *testing.T) {
	h := handler(t, httpprobe.Config{Port: "web"})
	if err := h.Check(probe.Target{Address: "shop.example", Ports: map[string]uint16{"web": 1}}); err != nil {
		t.Error(err)
	}
	h = handler(t, httpprobe.Config{UnixSocket: "/run/shop.sock"})
	if err := h.Check(probe.Target{}); err != nil {
		t.Error(err)
	}
}

func TestASourceAddressIsUsed(t *testing.T) {
	remote := make(chan string, 1)
	target := serve(t, func(w http.ResponseWriter, r *http.Request) { remote <- r.RemoteAddr })
	wantResult(t, attempt(t, httpprobe.Config{Port: "web", SourceAddress: "127.0.0.9"}, target, plenty), probe.Success, "")
	if got := <-remote; !strings.HasPrefix(got, "127.0.0.9:") {
		t.Errorf("the request came from %s", got)
	}
	// An address for documentation (RFC 5737): no machine has it.
	got := attempt(t, httpprobe.Config{Port: "web", SourceAddress: "192.0.2.1"}, target, plenty)
	wantResult(t, got, probe.Unknown, probe.ReasonTCPSource)
}

func TestAUnixSocketIsProbed(t *testing.T) {
	file := filepath.Join(testsync.SocketDir(t), "s")
	got := attempt(t, httpprobe.Config{UnixSocket: file}, probe.Target{}, plenty)
	wantResult(t, got, probe.Failure, probe.ReasonUnixMissing)

	listener, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	hosts := make(chan string, 2)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts <- r.Host
		if r.URL.Path == "/" {
			http.Redirect(w, r, "http://"+r.Host+":8080/next", http.StatusFound)
		}
	}))
	s.Listener.Close()
	s.Listener = listener
	s.Start()
	defer s.Close()
	wantResult(t, attempt(t, httpprobe.Config{UnixSocket: file}, probe.Target{}, plenty), probe.Success, "")
	if first, second := <-hosts, <-hosts; first != "localhost" || second != "localhost:8080" {
		t.Errorf("the hosts were %q and %q", first, second)
	}
	wantResult(t, attempt(t, httpprobe.Config{UnixSocket: file, Host: "::1", Path: "/next"}, probe.Target{}, plenty), probe.Success, "")
	if host := <-hosts; host != "[::1]" {
		t.Errorf("the host was %q", host)
	}
}

func TestAnIPv6AddressIsProbed(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no ::1")
	}
	hosts := make(chan string, 1)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hosts <- r.Host })}
	go s.Serve(listener)
	defer s.Close()
	wantResult(t, attempt(t, httpprobe.Config{Port: "web"}, targetOf(listener.Addr()), plenty), probe.Success, "")
	if got := <-hosts; got != listener.Addr().String() {
		t.Errorf("the host was %q", got)
	}
}

func TestAnAttemptAfterItsDeadlineIsATimeout(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	target := probe.Target{Address: "127.0.0.1"}
	wantResult(t, handler(t, httpprobe.Config{Port: "80"}).Probe(ctx, target), probe.Failure, probe.ReasonTCPTimeout)
}
