package api_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/tests/testsync"
)

const token = "correct-horse-battery"

func TestNonLoopbackListenerNeedsAuthentication(t *testing.T) {
	for _, c := range []struct {
		address string
		guarded bool
		want    string
	}{
		{address: "127.0.0.1:9650"},
		{address: "127.8.8.8:0"},
		{address: "[::1]:9650"},
		{address: "[::ffff:127.0.0.1]:9650"},
		{address: "localhost:9650"},
		{address: "0.0.0.0:9650", guarded: true},
		{address: ":9650", want: "without authentication"},
		{address: "0.0.0.0:9650", want: "without authentication"},
		{address: "[::]:9650", want: "without authentication"},
		{address: "localhost.example:9650", want: "without authentication"},
		{address: "127.0.0.1", want: "write an address and a port number"},
		{address: "127.0.0.1:http", want: "write an address and a port number"},
		{address: "127.0.0.1:65536", want: "write an address and a port number"},
	} {
		err := api.CheckListen(c.address, c.guarded)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("CheckListen(%q, %v) = %v, want %q", c.address, c.guarded, err, c.want)
		}
	}
}

func TestNewRejectsUnsafeConfigurations(t *testing.T) {
	e := engine.New(engine.Config{})
	for _, c := range []struct {
		config api.Config
		want   string
	}{
		{api.Config{}, "Config.Engine is nil"},
		{api.Config{Engine: e, Listen: "0.0.0.0:0"}, "without authentication"},
		{api.Config{Engine: e, Token: "short"}, "token has 5 bytes, but needs at least 16"},
		{api.Config{Engine: e, Token: "sixteen bytes or so"}, "without spaces"},
		{api.Config{Engine: e, TLS: api.TLS{CertFile: "x"}}, "set both"},
		{api.Config{Engine: e, TLS: api.TLS{CertFile: "x", KeyFile: "y"}}, "no such file"},
	} {
		if _, err := api.New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v): %v, want %q", c.config, err, c.want)
		}
	}
}

// request is a request that a test makes.
type request struct {
	name    string
	method  string // default GET
	path    string // default /v1/targets
	host    string // default 127.0.0.1:9650
	headers map[string]string
	want    int
}

func (a request) do(h http.Handler) *httptest.ResponseRecorder {
	method, path := a.method, a.path
	if method == "" {
		method = http.MethodGet
	}
	if path == "" {
		path = "/v1/targets"
	}
	r := httptest.NewRequest(method, path, nil)
	r.Host = a.host
	if a.host == "" {
		r.Host = api.DefaultListen
	}
	for k, v := range a.headers {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWithoutATokenOnlyLoopbackHostsAreServed(t *testing.T) {
	s := server(t, api.Config{})
	for _, a := range []request{
		{name: "the address", want: 200},
		{name: "another loopback address", host: "[::1]:80", want: 200},
		{name: "without a port", host: "127.0.0.1", want: 200},
		{name: "the name", host: "LocalHost:9650", want: 200},
		{name: "a name that leads here", host: "evil.example:9650", want: 403},
		{name: "a name that looks like it", host: "127.0.0.1.evil.example", want: 403},
		{name: "health by such a name", path: "/healthz", host: "evil.example", want: 403},
		{name: "the page", path: "/", host: "evil.example", want: 403},
		{name: "no host", host: " ", want: 403},
		{name: "its own page", headers: map[string]string{"Origin": "http://127.0.0.1:9650"}, want: 200},
		{name: "another site's page", headers: map[string]string{"Origin": "http://evil.example"}, want: 403},
		{name: "another port's page", headers: map[string]string{"Origin": "http://127.0.0.1:3000"}, want: 403},
		{name: "a page without an origin", headers: map[string]string{"Origin": "null"}, want: 403},
		{name: "a picture on another page", headers: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, want: 403},
		{name: "a frame in another page", headers: map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "iframe"}, want: 403},
		{name: "a link on another page", headers: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}, want: 200},
		{name: "typed in", headers: map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"}, want: 200},
	} {
		if w := a.do(s); w.Code != a.want {
			t.Errorf("%s: status %d, want %d: %s", a.name, w.Code, a.want, w.Body)
		}
	}
}

func TestTokenIsRequiredExceptForHealthAndPage(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("up 1\n")) })
	s := server(t, api.Config{Token: token, Listen: "0.0.0.0:0", Metrics: metrics})
	with := func(header string) map[string]string { return map[string]string{"Authorization": header} }
	for _, a := range []request{
		{name: "nothing shown", want: 401},
		{name: "the token", headers: with("Bearer " + token), want: 200},
		{name: "the scheme in other case", headers: with("bearer  " + token), want: 200},
		{name: "another token", headers: with("Bearer " + token + "x"), want: 401},
		{name: "part of it", headers: with("Bearer " + token[:20]), want: 401},
		{name: "another scheme", headers: with("Basic " + token), want: 401},
		{name: "no scheme", headers: with(token), want: 401},
		{name: "in the query", path: "/v1/targets?token=" + token, want: 401},
		{name: "in the query, too", path: "/v1/targets?token=" + token, headers: with("Bearer " + token), want: 400},
		{name: "one target", path: "/v1/targets/web", want: 401},
		{name: "events", path: "/v1/events", want: 401},
		{name: "stats", path: "/v1/stats", want: 401},
		{name: "metrics", path: "/metrics", want: 401},
		{name: "metrics, with it", path: "/metrics", headers: with("Bearer " + token), want: 200},
		{name: "what is not there", path: "/nothing", want: 401},
		{name: "by another name", host: "sonde.example", headers: with("Bearer " + token), want: 200},
		{name: "another site's page", headers: map[string]string{"Authorization": "Bearer " + token, "Origin": "http://evil.example"}, want: 403},
		{name: "health", path: "/healthz", host: "10.0.0.7:9650", want: 200},
		{name: "readiness", path: "/readyz", want: 200},
		{name: "the page", path: "/", want: 200},
		{name: "its script", path: "/page.js", want: 200},
		{name: "its style", path: "/page.css", want: 200},
	} {
		w := a.do(s)
		if w.Code != a.want {
			t.Errorf("%s: status %d, want %d: %s", a.name, w.Code, a.want, w.Body)
		}
		if w.Code == 401 && w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: the answer does not say what is needed", a.name)
		}
	}
}

func TestEveryResponseHasTheSecurityHeaders(t *testing.T) {
	s := server(t, api.Config{})
	for _, a := range []request{{path: "/"}, {path: "/v1/targets"}, {path: "/nothing"}, {host: "evil.example"}, {method: "POST"}} {
		h := a.do(s).Header()
		for name, want := range map[string]string{
			"Cache-Control":           "no-store",
			"X-Content-Type-Options":  "nosniff",
			"Content-Security-Policy": "frame-ancestors 'none'",
		} {
			if !strings.Contains(h.Get(name), want) {
				t.Errorf("%+v: %s is %q, want %q", a, name, h.Get(name), want)
			}
		}
		if csp := h.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.HasPrefix(csp, "default-src 'none'") {
			t.Errorf("the policy is too wide: %s", csp)
		}
	}
}

// rejection is a request that the API must reject without changing anything.
type rejection struct {
	name, token string // the token is that of the engine; empty for none
	request
	log string // the expected log
}

// testRejections makes requests, by default POSTs to path, to servers that record what they do.
func testRejections(t *testing.T, recording func(token string) (c api.Config, done *[]string, log *testsync.Buffer), path string, all []rejection) {
	t.Helper()
	for _, c := range all {
		config, done, log := recording(c.token)
		c.path, c.method = cmp.Or(c.path, path), cmp.Or(c.method, http.MethodPost)
		w := c.do(server(t, config))
		if w.Code != c.want || len(*done) != 0 {
			t.Errorf("%s: status %d, want %d, after %q: %s", c.name, w.Code, c.want, *done, w.Body)
		}
		if text := log.String(); (text == "") != (c.log == "") || !strings.Contains(text, c.log) {
			t.Errorf("%s: the log is %q, want %q", c.name, text, c.log)
		}
	}
}
