package httpprobe_test

import (
	"crypto/tls"
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
)

// speaking starts a server for certain HTTP versions, which responds with the version of the request.
func speaking(t *testing.T, set func(*http.Protocols)) probe.Target {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Proto+" "+r.Method+" "+string(body))
		if r.URL.Path == "/abort" {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	set(s.Config.Protocols)
	s.Start()
	t.Cleanup(s.Close)
	return targetOf(s.Listener.Addr())
}

func TestHTTP2IsSpokenWithoutTLS(t *testing.T) {
	only := speaking(t, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })
	both := speaking(t, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true); p.SetHTTP1(true) })
	old := speaking(t, func(p *http.Protocols) { p.SetHTTP1(true) })
	for name, c := range map[string]struct {
		config httpprobe.Config
		target probe.Target
		want   probe.Outcome
	}{
		"2":                  {httpprobe.Config{HTTPVersion: "2", BodyContains: "HTTP/2.0 GET"}, only, probe.Success},
		"2, with a body":     {httpprobe.Config{HTTPVersion: "2", Method: "POST", Body: "hello", BodyContains: "HTTP/2.0 POST hello"}, only, probe.Success},
		"2 of two":           {httpprobe.Config{HTTPVersion: "2", BodyContains: "HTTP/2.0"}, both, probe.Success},
		"1.1 of two":         {httpprobe.Config{HTTPVersion: "1.1", BodyContains: "HTTP/1.1"}, both, probe.Success},
		"the default of two": {httpprobe.Config{BodyContains: "HTTP/1.1"}, both, probe.Success},
		"2 of a server of 1": {httpprobe.Config{HTTPVersion: "2"}, old, probe.Failure},
		"1.1 of one of 2":    {httpprobe.Config{HTTPVersion: "1.1"}, only, probe.Failure},
	} {
		c.config.Port = "web"
		for _, c.config.ReuseConnection = range []bool{false, true} {
			h := handler(t, c.config)
			for range 2 {
				if got := h.Probe(t.Context(), c.target); got.Outcome != c.want {
					t.Errorf("%s: got %+v", name, got)
				}
			}
		}
	}
	got := attempt(t, httpprobe.Config{Port: "web", HTTPVersion: "2", Path: "/abort"}, only, plenty)
	if wantResult(t, got, probe.Failure, probe.ReasonHTTPBody); got.Detail != "status 200, but the body broke off: INTERNAL_ERROR" {
		t.Errorf("got %q", got.Detail)
	}
	got = attempt(t, httpprobe.Config{Port: "web", HTTPVersion: "2"}, old, plenty)
	if got.Reason != probe.ReasonHTTPProtocol || !strings.Contains(got.Detail, "HTTP/2") {
		t.Errorf("of a server of 1: %+v", got)
	}
	got = attempt(t, httpprobe.Config{Port: "web", HTTPVersion: "2"}, only, plenty)
	if facts := got.Facts(); facts.Protocol != "HTTP/2.0" {
		t.Errorf("the facts are %+v", facts)
	}
}

// With TLS, only the configured version is offered to the server.
func TestTheVersionIsOfferedToAServerWithTLS(t *testing.T) {
	ca := dialtest.NewAuthority(t)
	for version, want := range map[string]string{"2": "HTTP/2.0", "1.1": "HTTP/1.1", "": "HTTP/2.0"} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
		s.EnableHTTP2, s.TLS = true, &tls.Config{Certificates: []tls.Certificate{ca.Sign(t, time.Hour, "127.0.0.1")}}
		s.StartTLS()
		c := httpprobe.Config{Port: "web", Scheme: "https", HTTPVersion: version, BodyContains: want, TLS: &httpprobe.TLS{CAFile: ca.File}}
		wantResult(t, attempt(t, c, targetOf(s.Listener.Addr()), plenty), probe.Success, "")
		s.Close()
	}
}

// A redirect is followed with the same version; a redirect to a server of another version is a failure.
func TestARedirectStaysInItsVersion(t *testing.T) {
	end := speaking(t, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(int(end.Ports["web"])))+"/", http.StatusFound)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	c := httpprobe.Config{Port: "web", HTTPVersion: "2", BodyContains: "HTTP/2.0"}
	wantResult(t, attempt(t, c, targetOf(s.Listener.Addr()), plenty), probe.Success, "")
}

func TestAVersionThatCannotBeSpokenIsAnError(t *testing.T) {
	proxy := &httpprobe.Proxy{URL: "http://127.0.0.1:3128"}
	for want, c := range map[string]httpprobe.Config{
		`http_version`:                        {HTTPVersion: "3"},
		`http_version must be 1.1 with a`:     {HTTPVersion: "2", Proxy: proxy},
		`headers must not have Connection or`: {HTTPVersion: "2", Headers: map[string][]string{"upgrade": {"websocket"}}},
	} {
		c.Port = "80"
		if _, err := httpprobe.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
