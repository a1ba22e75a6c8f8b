package tcpprobe_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// plenty is a timeout that should not expire, and short is one that should.
const (
	plenty = time.Minute
	short  = 100 * time.Millisecond
)

func handler(t testing.TB, c tcpprobe.Config) prober {
	t.Helper()
	h, err := tcpprobe.New(c)
	if err != nil {
		t.Fatalf("New(%+v): %v", c, err)
	}
	return prober{h.(Handler), inSteps(t)}
}

func attempt(t testing.TB, c tcpprobe.Config, target probe.Target, timeout time.Duration) probe.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return handler(t, c).Probe(ctx, target)
}

func wantResult(t testing.TB, got probe.Result, outcome probe.Outcome, reason probe.Reason) {
	t.Helper()
	if got.Outcome != outcome || got.Reason != reason {
		t.Errorf("got %v %q (%s), want %v %q", got.Outcome, got.Reason, got.Detail, outcome, reason)
	}
}

func targetOf(addr net.Addr) probe.Target {
	at := netip.MustParseAddrPort(addr.String())
	return probe.Target{Name: "test", Address: at.Addr().String(), Ports: map[string]uint16{"db": at.Port()}}
}

func listen(t testing.TB, network, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// serve passes each connection to f and closes it afterwards.
func serve(t testing.TB, listener net.Listener, f func(conn net.Conn)) {
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				f(conn)
			}()
		}
	}()
}

func serveTCP(t testing.TB, f func(conn net.Conn)) probe.Target {
	t.Helper()
	listener := listen(t, "tcp", "127.0.0.1:0")
	serve(t, listener, f)
	return targetOf(listener.Addr())
}

func TestAConnectionIsEnough(t *testing.T) {
	listener := listen(t, "tcp", "127.0.0.1:0") // the system accepts connections, the program does not
	got := attempt(t, tcpprobe.Config{Port: "db"}, targetOf(listener.Addr()), plenty)
	wantResult(t, got, probe.Success, "")
	if got.Timings.Connect <= 0 || got.Timings.FirstByte != 0 {
		t.Errorf("got the timings %+v, want connect only", got.Timings)
	}
}

func TestAPlainAttemptSendsNothingAndCloses(t *testing.T) {
	type end struct {
		read []byte
		err  error
	}
	ends := make(chan end, 1)
	target := serveTCP(t, func(conn net.Conn) {
		read, err := io.ReadAll(conn)
		ends <- end{read, err}
	})
	wantResult(t, attempt(t, tcpprobe.Config{Port: "db"}, target, plenty), probe.Success, "")
	if got := <-ends; len(got.read) != 0 || got.err != nil {
		t.Errorf("the server read %q and then %v, want an orderly end", got.read, got.err)
	}
}

func TestAClosedPortIsRefused(t *testing.T) {
	listener := listen(t, "tcp", "127.0.0.1:0")
	target := targetOf(listener.Addr())
	listener.Close()
	for _, c := range []tcpprobe.Config{{Port: "db"}, {Port: "db", SourceAddress: "127.0.0.9"}} {
		wantResult(t, attempt(t, c, target, plenty), probe.Failure, probe.ReasonTCPRefused)
	}
}

func TestASourceAddressIsUsed(t *testing.T) {
	remote := make(chan string, 1)
	target := serveTCP(t, func(conn net.Conn) { remote <- conn.RemoteAddr().String() })
	wantResult(t, attempt(t, tcpprobe.Config{Port: "db", SourceAddress: "127.0.0.9"}, target, plenty), probe.Success, "")
	if got := <-remote; !strings.HasPrefix(got, "127.0.0.9:") {
		t.Errorf("the connection came from %s", got)
	}
}

func TestWhatThisMachineCannotDoIsUnknown(t *testing.T) {
	target := serveTCP(t, func(net.Conn) {})
	// Addresses for documentation (RFC 5737, RFC 3849): no machine has them.
	for _, source := range []string{"192.0.2.1", "2001:db8::1"} {
		got := attempt(t, tcpprobe.Config{Port: "db", SourceAddress: source}, target, plenty)
		wantResult(t, got, probe.Unknown, probe.ReasonTCPSource)
	}
}

func TestWhatTheTargetLacksIsUnknown(t *testing.T) {
	h := handler(t, tcpprobe.Config{Port: "db"})
	for reason, target := range map[probe.Reason]probe.Target{
		probe.ReasonNoPort: {Name: "shop", Address: "127.0.0.1"},
		probe.ReasonNoAddr: {Name: "shop", Ports: map[string]uint16{"db": 1}},
	} {
		wantResult(t, h.Probe(t.Context(), target), probe.Unknown, reason)
		if h.Check(target) == nil {
			t.Errorf("Check finds nothing wrong with %+v", target)
		}
	}
	if err := h.Check(probe.Target{Address: "127.0.0.1", Ports: map[string]uint16{"db": 1}}); err != nil {
		t.Error(err)
	}
}

func TestHandlersKnowTheirEndpoint(t *testing.T) {
	target := probe.Target{Name: "shop", Address: "::1", Ports: map[string]uint16{"db": 5432}}
	for _, config := range []tcpprobe.Config{{Port: "db"}, {Port: "5432", Host: "::1"}, {Port: "5432", KeepAlive: &tcpprobe.KeepAlive{}}} {
		h, err := tcpprobe.New(config)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.(probe.EndpointHandler).Endpoint(target); got != "[::1]:5432" {
			t.Errorf("of %+v: got %q", config, got)
		}
	}
}

func TestACancelledAttemptIsUnknown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	target := serveTCP(t, func(conn net.Conn) {
		cancel()
		io.Copy(io.Discard, conn)
	})
	got := handler(t, tcpprobe.Config{Port: "db", Expect: "x"}).Probe(ctx, target)
	wantResult(t, got, probe.Unknown, probe.ReasonStopped)
	wantResult(t, handler(t, tcpprobe.Config{Port: "db"}).Probe(ctx, target), probe.Unknown, probe.ReasonStopped)
}

func TestAUnixSocketIsProbed(t *testing.T) {
	file := filepath.Join(testsync.SocketDir(t), "s")
	c := tcpprobe.Config{UnixSocket: file, Send: "PING", Expect: "PONG"}
	wantResult(t, attempt(t, c, probe.Target{}, plenty), probe.Failure, probe.ReasonUnixMissing)
	listener := listen(t, "unix", file)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	serve(t, listener, pong)
	wantResult(t, attempt(t, c, probe.Target{}, plenty), probe.Success, "")
	listener.Close()
	wantResult(t, attempt(t, c, probe.Target{}, plenty), probe.Failure, probe.ReasonUnixRefused)
}

// pong responds to PING with PONG.
func pong(conn net.Conn) {
	ping := make([]byte, 4)
	if _, err := io.ReadFull(conn, ping); err == nil && string(ping) == "PING" {
		io.WriteString(conn, "+PONG\r\n")
	}
}

func TestAnIPv6AddressIsProbed(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("this machine has no ::1")
	}
	defer listener.Close()
	wantResult(t, attempt(t, tcpprobe.Config{Port: "db"}, targetOf(listener.Addr()), plenty), probe.Success, "")
}

func TestTLSIsUsedIfConfigured(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	no := false
	good, expired := ca.Sign(t, time.Hour, "127.0.0.1", "db.example"), ca.Sign(t, -time.Hour, "127.0.0.1")
	secure := func(cert tls.Certificate) probe.Target {
		listener := tls.NewListener(listen(t, "tcp", "127.0.0.1:0"), &tls.Config{Certificates: []tls.Certificate{cert}})
		serve(t, listener, pong)
		return targetOf(listener.Addr())
	}
	tests := map[string]struct {
		tls     tcpprobe.TLS
		target  probe.Target
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"good":             {tcpprobe.TLS{CAFile: ca.File}, secure(good), probe.Success, ""},
		"another name":     {tcpprobe.TLS{CAFile: ca.File, ServerName: "shop.example"}, secure(good), probe.Failure, probe.ReasonTLSName},
		"expired":          {tcpprobe.TLS{CAFile: ca.File}, secure(expired), probe.Failure, probe.ReasonTLSExpired},
		"untrusted":        {tcpprobe.TLS{}, secure(good), probe.Failure, probe.ReasonTLSUntrusted},
		"not verified":     {tcpprobe.TLS{Verify: &no}, secure(expired), probe.Success, ""},
		"short":            {tcpprobe.TLS{CAFile: ca.File, MinValidity: 2 * time.Hour}, secure(good), probe.Failure, probe.ReasonTLSExpiring},
		"short, a warning": {tcpprobe.TLS{CAFile: ca.File, MinValidity: 2 * time.Hour, OnShortValidity: "warn"}, secure(good), probe.Warning, probe.ReasonTLSExpiring},
		"not TLS":          {tcpprobe.TLS{Verify: &no}, serveTCP(t, func(conn net.Conn) { io.WriteString(conn, "220 mail.example ESMTP\r\n") }), probe.Failure, probe.ReasonTLSFailed},
		"no handshake":     {tcpprobe.TLS{Verify: &no}, serveTCP(t, func(conn net.Conn) { conn.Read(make([]byte, 1<<12)) }), probe.Failure, ""},
		"HTTP without TLS": {tcpprobe.TLS{Verify: &no}, serveHTTP(t), probe.Failure, probe.ReasonTLSFailed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := attempt(t, tcpprobe.Config{Port: "db", TLS: &test.tls, Send: "PING", Expect: "PONG"}, test.target, plenty)
			if test.reason == "" && (got.Reason == probe.ReasonTLSFailed || got.Reason == probe.ReasonTCPReset) {
				test.reason = got.Reason // a close or a reset, at random
			}
			wantResult(t, got, test.outcome, test.reason)
			if got.Timings.TLS <= 0 {
				t.Errorf("got the timings %+v, want one for TLS", got.Timings)
			}
			want := map[string]tls.Certificate{"good": good, "another name": good, "untrusted": good, "expired": expired, "not verified": expired, "short": good, "short, a warning": good}[name]
			if (want.Leaf == nil) != (got.CertificateExpiry == 0) || want.Leaf != nil && got.CertificateExpiry != want.Leaf.NotAfter.Unix() {
				t.Errorf("the certificate expires at %d", got.CertificateExpiry)
			}
			if shaken := got.Outcome != probe.Failure || got.Reason == probe.ReasonTLSExpiring; shaken != (got.Facts().TLS == tls.VersionTLS13) {
				t.Errorf("got the facts %+v", got.Facts())
			}
		})
	}
}

func serveHTTP(t *testing.T) probe.Target {
	listener := listen(t, "tcp", "127.0.0.1:0")
	s := &http.Server{ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(listener)
	t.Cleanup(func() { s.Close() })
	return targetOf(listener.Addr())
}

func TestARejectedClientCertificateIsNoticedIfAResponseIsExpected(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	listener := tls.NewListener(listen(t, "tcp", "127.0.0.1:0"), &tls.Config{
		Certificates: []tls.Certificate{ca.Sign(t, time.Hour, "127.0.0.1")},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
	})
	serve(t, listener, pong)
	c := tcpprobe.Config{Port: "db", TLS: &tcpprobe.TLS{CAFile: ca.File}, Expect: "PONG"}
	wantResult(t, attempt(t, c, targetOf(listener.Addr()), plenty), probe.Failure, probe.ReasonTLSFailed)
}

// The detail names the certificate that expires first, whether or not it is still valid, even if the chain is not verified.
func TestTheCertificateThatExpiresIsNamed(t *testing.T) {
	ca, no := dialtest.NewAuthority(t), false
	served := func(by *dialtest.Authority) probe.Target {
		cert := by.Sign(t, 48*time.Hour, "127.0.0.1")
		listener := tls.NewListener(listen(t, "tcp", "127.0.0.1:0"), &tls.Config{Certificates: []tls.Certificate{cert}})
		serve(t, listener, pong)
		return targetOf(listener.Addr())
	}
	soon, over := served(ca.Intermediate(t, "R\x1b3\n"+strings.Repeat("x", 100), 20*time.Minute)), served(ca.Intermediate(t, "R4", -time.Hour))
	for name, test := range map[string]struct {
		tls    tcpprobe.TLS
		target probe.Target
		reason probe.Reason
		want   string
	}{
		"an intermediate":          {tcpprobe.TLS{CAFile: ca.File, MinValidity: 30 * time.Minute}, soon, probe.ReasonTLSExpiring, "certificate 2 of 2 (CN=R\ufffd3 " + strings.Repeat("x", 74) + ") expires in "},
		"not verified":             {tcpprobe.TLS{Verify: &no, MinValidity: 30 * time.Minute}, soon, probe.ReasonTLSExpiring, "certificate 2 of 2 (CN=R\ufffd3 "},
		"that is over":             {tcpprobe.TLS{CAFile: ca.File}, over, probe.ReasonTLSExpired, "tls handshake: certificate 2 of 2 (CN=R4): tls: failed to verify certificate: x509: certificate has expired"},
		"over, and not verified":   {tcpprobe.TLS{Verify: &no, MinValidity: time.Minute}, over, probe.ReasonTLSExpiring, "certificate 2 of 2 (CN=R4) expired 1h ago ("},
		"of an authority":          {tcpprobe.TLS{CAFile: ca.File, MinValidity: 2 * time.Hour}, served(ca), probe.ReasonTLSExpiring, "the authority (CN=test authority) expires in "},
		"over, and nothing judged": {tcpprobe.TLS{Verify: &no}, over, "", ""},
	} {
		got := attempt(t, tcpprobe.Config{Port: "db", TLS: &test.tls, Send: "PING", Expect: "PONG"}, test.target, plenty)
		if got.Reason != test.reason || !strings.HasPrefix(got.Detail, test.want) {
			t.Errorf("%s: got %s: %q, want %s: %s", name, got.Reason, got.Detail, test.reason, test.want)
		}
	}
}
