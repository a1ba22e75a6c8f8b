package httpprobe_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// serveTLS responds with a status for the protocol version: 211 or 220.
func serveTLS(t testing.TB, config *tls.Config, http2 bool) probe.Target {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200 + 10*r.ProtoMajor + r.ProtoMinor)
	}))
	s.TLS, s.EnableHTTP2 = config, http2
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	return targetOf(s.Listener.Addr())
}

func serverConfig(c tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c}}
}

func TestCertificatesAreVerified(t *testing.T) {
	t.Setenv("GODEBUG", "x509negativeserial=1") // as in cmd/engine
	ours, other := dialtest.NewAuthority(t), dialtest.NewAuthority(t)
	no := false
	good := ours.Sign(t, time.Hour, "127.0.0.1", "shop.example")
	expired := ours.Sign(t, -time.Hour, "127.0.0.1")
	unnamed := ours.Sign(t, time.Hour, "shop.example")
	old := &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	tests := map[string]struct {
		server  *tls.Config
		client  httpprobe.TLS
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"good":                       {serverConfig(good), httpprobe.TLS{CAFile: ours.File}, probe.Success, ""},
		"good for the name":          {serverConfig(unnamed), httpprobe.TLS{CAFile: ours.File, ServerName: "shop.example"}, probe.Success, ""},
		"expired":                    {serverConfig(expired), httpprobe.TLS{CAFile: ours.File}, probe.Failure, probe.ReasonTLSExpired},
		"for another name":           {serverConfig(unnamed), httpprobe.TLS{CAFile: ours.File}, probe.Failure, probe.ReasonTLSName},
		"by another authority":       {serverConfig(good), httpprobe.TLS{CAFile: other.File}, probe.Failure, probe.ReasonTLSUntrusted},
		"unknown to the system":      {serverConfig(good), httpprobe.TLS{}, probe.Failure, probe.ReasonTLSUntrusted},
		"expired but not verified":   {serverConfig(expired), httpprobe.TLS{Verify: &no}, probe.Success, ""},
		"of an appliance":            {serverConfig(dialtest.WithNegativeSerial(t, good)), httpprobe.TLS{Verify: &no}, probe.Success, ""},
		"an old server":              {old, httpprobe.TLS{CAFile: ours.File}, probe.Failure, probe.ReasonTLSFailed},
		"an old server, as accepted": {old, httpprobe.TLS{CAFile: ours.File, MinVersion: "1.0"}, probe.Success, ""},
		"a server that is too old":   {&tls.Config{Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS12}, httpprobe.TLS{CAFile: ours.File, MinVersion: "1.3"}, probe.Failure, probe.ReasonTLSFailed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := httpprobe.Config{Port: "web", Scheme: "HTTPS", TLS: &test.client}
			got := attempt(t, c, serveTLS(t, test.server, false), plenty)
			wantResult(t, got, test.outcome, test.reason)
			if got.Timings.TLS <= 0 {
				t.Errorf("got the timings %+v, want one for TLS", got.Timings)
			}
			if known := got.Outcome == probe.Success || got.Reason != probe.ReasonTLSFailed; known && got.CertificateExpiry != test.server.Certificates[0].Leaf.NotAfter.Unix() {
				t.Errorf("the certificate expires at %d", got.CertificateExpiry)
			}
		})
	}
}

func TestHTTP2IsUsedIfTheServerOffersIt(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	cert := ca.Sign(t, time.Hour, "127.0.0.1")
	for name, reuse := range map[string]bool{"alone": false, "reused": true} {
		for version, http2 := range map[string]bool{"211": false, "220": true} {
			t.Run(name+" "+version, func(t *testing.T) {
				c := httpprobe.Config{
					Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: ca.File},
					Status: []string{version}, ReuseConnection: reuse,
				}
				got := attempt(t, c, serveTLS(t, serverConfig(cert), http2), plenty)
				wantResult(t, got, probe.Success, "")
				if got.Timings.FirstByte <= 0 {
					t.Errorf("got the timings %+v", got.Timings)
				}
			})
		}
	}
}

func TestAnUpgradeHeaderDisablesHTTP2(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	target := serveTLS(t, serverConfig(ca.Sign(t, time.Hour, "127.0.0.1")), true)
	c := httpprobe.Config{
		Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: ca.File}, Status: []string{"211"},
		Headers: map[string][]string{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
	}
	wantResult(t, attempt(t, c, target, plenty), probe.Success, "")
}

func TestTheClientCertificateIsSent(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	config := serverConfig(ca.Sign(t, time.Hour, "127.0.0.1"))
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, ca.Pool()
	target := serveTLS(t, config, false)
	c := httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: ca.File}}
	wantResult(t, attempt(t, c, target, plenty), probe.Failure, probe.ReasonTLSFailed)
	c.TLS.CertFile, c.TLS.KeyFile = dialtest.Files(t, ca.Sign(t, time.Hour, "client"))
	wantResult(t, attempt(t, c, target, plenty), probe.Success, "")
}

func TestAnotherHostDoesNotGetTheCertificate(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	shown := make(chan int, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown <- len(r.TLS.PeerCertificates)
	}))
	s.TLS = serverConfig(ca.Sign(t, time.Hour, "localhost"))
	s.TLS.ClientAuth = tls.RequestClientCert
	s.StartTLS()
	defer s.Close()
	to := "https://localhost:" + strconv.Itoa(int(targetOf(s.Listener.Addr()).Ports["web"]))
	c := httpprobe.Config{
		Port: "web", Scheme: "http", Path: "/to?location=" + to, Redirects: "all",
		TLS: &httpprobe.TLS{CAFile: ca.File, ServerName: "shop.example"},
	}
	c.TLS.CertFile, c.TLS.KeyFile = dialtest.Files(t, ca.Sign(t, time.Hour, "client"))
	wantResult(t, attempt(t, c, bounce(t), plenty), probe.Success, "")
	if n := <-shown; n != 0 {
		t.Errorf("the other host was shown %d certificates", n)
	}
}

func TestTheWrongSchemeIsReported(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	secure := serveTLS(t, serverConfig(ca.Sign(t, time.Hour, "127.0.0.1")), false)
	wantResult(t, attempt(t, httpprobe.Config{Port: "web"}, secure, plenty), probe.Failure, probe.ReasonHTTPStatus)
	plain := serve(t, func(http.ResponseWriter, *http.Request) {})
	wantResult(t, attempt(t, httpprobe.Config{Port: "web", Scheme: "https"}, plain, plenty), probe.Failure, probe.ReasonTLSFailed)
}

func TestBrokenHTTP2IsNotHTTP(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	config := serverConfig(ca.Sign(t, time.Hour, "127.0.0.1"))
	config.NextProtos = []string{"h2"}
	target := serveRaw(t, func(conn *net.TCPConn) {
		secure := tls.Server(conn, config)
		io.WriteString(secure, strings.Repeat("x", 1000))
		io.Copy(io.Discard, secure)
	})
	c := httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: ca.File}}
	wantResult(t, attempt(t, c, target, plenty), probe.Failure, probe.ReasonHTTPProtocol)
}

func TestResultHasTheStatusAndTheExpiryOfTheCertificate(t *testing.T) {
	ca, no := dialtest.NewAuthority(t), false
	for name, validFor := range map[string]time.Duration{"valid": time.Hour, "expired": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			cert := ca.Sign(t, validFor, "127.0.0.1")
			leaf, err := x509.ParseCertificate(cert.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			c := httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{Verify: &no}, Status: []string{"500"}}
			c.ReuseConnection = true
			h, target := handler(t, c), serveTLS(t, serverConfig(cert), false)
			h.Probe(t.Context(), target)
			got := h.Probe(t.Context(), target) // over the connection of the first attempt
			if got.Reason != probe.ReasonHTTPStatus || got.HTTPStatus != 211 || got.CertificateExpiry != leaf.NotAfter.Unix() {
				t.Errorf("got %+v, want status 211 and the expiry %d", got, leaf.NotAfter.Unix())
			}
		})
	}
	plain := attempt(t, httpprobe.Config{Port: "web"}, serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), plenty)
	if plain.HTTPStatus != http.StatusNoContent || plain.CertificateExpiry != 0 {
		t.Errorf("got %+v without TLS", plain)
	}
}

func TestACertificateMustBeValidForLongEnough(t *testing.T) {
	ca, no := dialtest.NewAuthority(t), false // the authority is valid for an hour
	soon, long := ca.Sign(t, 30*time.Minute, "127.0.0.1"), ca.Sign(t, 48*time.Hour, "127.0.0.1")
	tests := map[string]struct {
		server  tls.Certificate
		client  httpprobe.TLS
		status  string
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"long enough":               {soon, httpprobe.TLS{MinValidity: 29 * time.Minute}, "211", probe.Success, ""},
		"too short":                 {soon, httpprobe.TLS{MinValidity: 31 * time.Minute}, "211", probe.Failure, probe.ReasonTLSExpiring},
		"too short, as a warning":   {soon, httpprobe.TLS{MinValidity: 31 * time.Minute, OnShortValidity: "warn"}, "211", probe.Warning, probe.ReasonTLSExpiring},
		"its authority's too short": {long, httpprobe.TLS{MinValidity: 24 * time.Hour}, "211", probe.Failure, probe.ReasonTLSExpiring},
		"of its own, not verified":  {long, httpprobe.TLS{MinValidity: 24 * time.Hour, Verify: &no}, "211", probe.Success, ""},
		"expired, not verified":     {ca.Sign(t, -time.Hour, "127.0.0.1"), httpprobe.TLS{MinValidity: time.Second, Verify: &no}, "211", probe.Failure, probe.ReasonTLSExpiring},
		"beside another failure":    {soon, httpprobe.TLS{MinValidity: 31 * time.Minute}, "500", probe.Failure, probe.ReasonHTTPStatus},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.client.Verify == nil {
				test.client.CAFile = ca.File
			}
			c := httpprobe.Config{Port: "web", Scheme: "https", TLS: &test.client, Status: []string{test.status}}
			got := attempt(t, c, serveTLS(t, serverConfig(test.server), false), plenty)
			wantResult(t, got, test.outcome, test.reason)
			if got.HTTPStatus != 211 || got.CertificateExpiry != test.server.Leaf.NotAfter.Unix() {
				t.Errorf("got status %d and expiry %d", got.HTTPStatus, got.CertificateExpiry)
			}
		})
	}
}

func TestTheExpiryIsKnownIfTheServerRejectsTheClientOrIsSilent(t *testing.T) {
	tier.Slow(t)
	ca := dialtest.NewAuthority(t)
	cert := ca.Sign(t, time.Hour, "127.0.0.1")
	strict := serverConfig(cert)
	strict.ClientAuth, strict.ClientCAs, strict.MaxVersion = tls.RequireAndVerifyClientCert, ca.Pool(), tls.VersionTLS12
	silent := serveRaw(t, func(conn *net.TCPConn) {
		io.Copy(io.Discard, tls.Server(conn, serverConfig(cert)))
	})
	for name, test := range map[string]struct {
		target  probe.Target
		timeout time.Duration
		reason  probe.Reason
	}{
		"rejected in the handshake": {serveTLS(t, strict, false), plenty, probe.ReasonTLSFailed},
		"silent after it":           {silent, 500 * time.Millisecond, probe.ReasonHTTPTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			c := httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: ca.File}}
			var got probe.Result
			testsync.Longer(t, string(test.reason), test.timeout, testsync.Timeout, func(timeout time.Duration) bool {
				got = attempt(t, c, test.target, timeout)
				isEarly := strings.HasSuffix(string(got.Reason), ".timeout") && timeout < plenty // before the handshake finished
				return !isEarly || got.Reason == test.reason
			})
			wantResult(t, got, probe.Failure, test.reason)
			if got.CertificateExpiry != cert.Leaf.NotAfter.Unix() {
				t.Errorf("the certificate expires at %d", got.CertificateExpiry)
			}
		})
	}
}
