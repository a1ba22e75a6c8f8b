package httpprobe_test

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Bodies that end too early.
var brokenBodies = map[string]http.HandlerFunc{
	"stalled": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(status(r))
		io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	},
	"short": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(status(r))
		io.WriteString(w, "begin")
	},
	"cut off in a chunk": func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status(r))
		io.WriteString(w, "begin")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
}

// status returns the status that a path such as "/500" requests.
func status(r *http.Request) int {
	if r.URL.Path == "/500" {
		return 500
	}
	return 200
}

func TestABrokenBodyIsAFailureExceptInKubeletCompatibility(t *testing.T) {
	tests := []struct {
		path          string
		compatibility probe.Compatibility
		outcome       probe.Outcome
		reason        probe.Reason
	}{
		{"/200", probe.Mended, probe.Failure, probe.ReasonHTTPBody},
		{"/500", probe.Mended, probe.Failure, probe.ReasonHTTPStatus},
		{"/200", probe.Kubelet, probe.Unknown, probe.ReasonHTTPBody},
		{"/500", probe.Kubelet, probe.Unknown, probe.ReasonHTTPBody},
	}
	for name, serveBody := range brokenBodies {
		for _, test := range tests {
			t.Run(name+" "+test.path+" "+test.compatibility.String(), func(t *testing.T) {
				timeout := plenty
				if name == "stalled" {
					timeout = short
				}
				c := httpprobe.Config{Port: "web", Path: test.path, Compatibility: test.compatibility}
				got := attempt(t, c, serve(t, serveBody), timeout)
				if name == "stalled" && got.Reason == probe.ReasonHTTPTimeout {
					t.Skip("the machine is too slow: the head did not come in time")
				}
				wantResult(t, got, test.outcome, test.reason)
			})
		}
	}
}

func TestAnUnacceptedStatusDoesNotWaitForTheBody(t *testing.T) {
	target := serve(t, brokenBodies["stalled"])
	got := attempt(t, httpprobe.Config{Port: "web", Path: "/500"}, target, plenty) // reading the body would take as long
	wantResult(t, got, probe.Failure, probe.ReasonHTTPStatus)
}

func TestTheBodyIsReadUpToItsMaximum(t *testing.T) {
	tests := map[string]struct {
		size    int
		stalls  bool
		outcome probe.Outcome
	}{
		"as large as the bound":                  {probe.MaxDetail, false, probe.Success},
		"larger than the bound":                  {10 * probe.MaxDetail, false, probe.Success},
		"larger than the bound, and then stalls": {probe.MaxDetail + 1, true, probe.Success},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			target := serve(t, func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, strings.Repeat("x", test.size))
				w.(http.Flusher).Flush()
				if test.stalls {
					<-r.Context().Done()
				}
			})
			wantResult(t, attempt(t, httpprobe.Config{Port: "web"}, target, plenty), test.outcome, "")
		})
	}
}

func TestAssertionsAreAboutTheWholeBody(t *testing.T) {
	const at = probe.MaxDetail
	filler := strings.Repeat("x", at)
	tests := map[string]struct {
		config  httpprobe.Config
		body    string
		outcome probe.Outcome
	}{
		"text that is there":              {httpprobe.Config{BodyContains: "ok"}, "it is ok", probe.Success},
		"text that is not there":          {httpprobe.Config{BodyContains: "ok"}, "it is not", probe.Failure},
		"text in a long body":             {httpprobe.Config{BodyContains: "ok"}, filler[1:] + "ok", probe.Success},
		"text that no long body has":      {httpprobe.Config{BodyContains: "ok"}, filler + "no", probe.Failure},
		"forbidden text in a long body":   {httpprobe.Config{BodyNotContains: "error"}, filler + "error", probe.Failure},
		"a regex that matches":            {httpprobe.Config{BodyRegex: `"lag":\s*\d\b`}, `{"lag": 3}`, probe.Success},
		"a regex that does not match":     {httpprobe.Config{BodyRegex: `"lag":\s*\d\b`}, `{"lag": 33}`, probe.Failure},
		"a regex of the end":              {httpprobe.Config{BodyRegex: `ready$`}, filler[5:] + "ready", probe.Success},
		"a regex of what is not the end":  {httpprobe.Config{BodyRegex: `ready$`}, filler[5:] + "ready, no", probe.Failure},
		"a forbidden regex of the end":    {httpprobe.Config{BodyNotRegex: `error$`}, filler + "error", probe.Failure},
		"both, one of which is not there": {httpprobe.Config{BodyContains: "a", BodyRegex: "^b"}, "a", probe.Failure},
		"an empty body":                   {httpprobe.Config{BodyContains: "a"}, "", probe.Failure},
		"JSON":                            {httpprobe.Config{JSONEquals: map[string]string{"a": "1"}}, `{"b": "` + filler + `", "a": 1}`, probe.Success},
		"a byte order mark before JSON":   {httpprobe.Config{JSONEquals: map[string]string{"a": "1"}}, "\ufeff{\"a\": 1}", probe.Success},
		"a byte order mark before a text": {httpprobe.Config{BodyRegex: "^ok"}, "\ufeffok", probe.Success},
		"a byte order mark in a text":     {httpprobe.Config{BodyRegex: "^ok"}, "\n\ufeffok", probe.Failure},
		"JSON in UTF-16":                  {httpprobe.Config{JSONEquals: map[string]string{"a": "1"}}, "\xff\xfe{\x00", probe.Failure},
	}
	for name, test := range tests {
		for way, body := range map[string]func(http.ResponseWriter){
			"": func(w http.ResponseWriter) { w.Header().Set("Content-Length", strconv.Itoa(len(test.body))) }, " in chunks": func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		} {
			t.Run(name+way, func(t *testing.T) {
				target := serve(t, func(w http.ResponseWriter, r *http.Request) {
					body(w)
					io.WriteString(w, test.body)
				})
				test.config.Port = "web"
				got := attempt(t, test.config, target, plenty)
				reason := probe.ReasonHTTPAssert
				if test.outcome == probe.Success {
					reason = ""
				}
				wantResult(t, got, test.outcome, reason)
			})
		}
	}
}

// An assertion about a body that exceeds the maximum is decided if the rest cannot change it.
func TestAnAssertionThatDependsOnTheRestOfABodyIsUnknown(t *testing.T) {
	const most = 4 << 10
	begin := func(text string) string { return text + strings.Repeat("x", most-len(text)) }
	end := func(text string) string { return strings.Repeat("x", most-len(text)) + text }
	for name, test := range map[string]struct {
		config  httpprobe.Config
		begin   string
		outcome probe.Outcome
	}{
		"text that came":              {httpprobe.Config{BodyContains: "ok"}, begin("ok"), probe.Success},
		"text that may come":          {httpprobe.Config{BodyContains: "ok"}, begin(""), probe.Unknown},
		"forbidden text that came":    {httpprobe.Config{BodyNotContains: "ok"}, begin("ok"), probe.Failure},
		"forbidden text that may":     {httpprobe.Config{BodyNotContains: "ok"}, begin(""), probe.Unknown},
		"a regex that matches":        {httpprobe.Config{BodyRegex: "^ok"}, begin("ok"), probe.Success},
		"a regex that may":            {httpprobe.Config{BodyRegex: "ok"}, begin(""), probe.Unknown},
		"a regex at the cut":          {httpprobe.Config{BodyRegex: "ok$"}, end("ok"), probe.Unknown},
		"a word at the cut":           {httpprobe.Config{BodyRegex: `x ok\b`}, end(" ok"), probe.Unknown},
		"a greedy regex":              {httpprobe.Config{BodyRegex: "(?s)ok.*"}, begin("ok"), probe.Success},
		"a forbidden regex":           {httpprobe.Config{BodyNotRegex: "^ok"}, begin("ok"), probe.Failure},
		"a forbidden regex that may":  {httpprobe.Config{BodyNotRegex: "ok"}, begin(""), probe.Unknown},
		"a forbidden one at the cut":  {httpprobe.Config{BodyNotRegex: "ok$"}, end("ok"), probe.Unknown},
		"JSON":                        {httpprobe.Config{JSONEquals: map[string]string{"a": "1"}}, begin(`{"a": 1}`), probe.Unknown},
		"one that fails, after one":   {httpprobe.Config{BodyContains: "no", BodyNotRegex: "^ok"}, begin("ok"), probe.Failure},
		"one that holds, and another": {httpprobe.Config{BodyContains: "ok", BodyNotContains: "no"}, begin("ok"), probe.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			target := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, test.begin+"rest") })
			test.config.Port, test.config.MaxBody = "web", most
			got := attempt(t, test.config, target, plenty)
			wantResult(t, got, test.outcome, map[probe.Outcome]probe.Reason{probe.Failure: probe.ReasonHTTPAssert, probe.Unknown: probe.ReasonHTTPBody}[test.outcome])
			if test.outcome == probe.Unknown && (!strings.Contains(got.Detail, "raise max_body") || got.HTTPStatus != 200) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A failure shows the path and the beginning of the body that caused it. A success, a response to a redirect, and an attempt for a
// stranger show nothing. Text that looks like a secret is never shown.
func TestAFailureShowsTheBodyWithoutSecrets(t *testing.T) {
	const body = `{"error":"down","password":"hunter2"}`
	const shown = `: {"error":"down","password":(sensitive)}`
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			w.WriteHeader(302)
		case "/to":
			w.Header().Set("Location", "/")
			w.WriteHeader(302)
		case "/zip":
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(500)
		case "/garbage":
			conn, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(conn, body+"\r\n\r\n")
			conn.Close()
			return
		}
		io.WriteString(w, body)
	})
	tests := map[string]struct {
		config httpprobe.Config
		want   string
	}{
		"accepted":       {httpprobe.Config{}, "status 200"},
		"unaccepted":     {httpprobe.Config{Path: "/health", Status: []string{"204"}}, "status 200 of /health, want 204" + shown},
		"asserted":       {httpprobe.Config{BodyContains: "other"}, "status 200, but the body of 37 bytes does not contain the expected text" + shown},
		"a value":        {httpprobe.Config{JSONEquals: map[string]string{"error": "up"}}, "status 200, but the value at error does not satisfy json_equals: error = down"},
		"a secret value": {httpprobe.Config{JSONEquals: map[string]string{"password": "x"}}, "status 200, but the value at password does not satisfy json_equals: password = (sensitive)"},
		"no value":       {httpprobe.Config{JSONEquals: map[string]string{"status": "up"}}, "status 200, but json_equals finds no value at status" + shown},
		"compressed":     {httpprobe.Config{Path: "/zip"}, "status 500 of /zip, want 200-399"},
		"redirected":     {httpprobe.Config{Path: "/redirect"}, "status 302: redirect not followed"},
		"after one":      {httpprobe.Config{Path: "/to", BodyContains: "other"}, "after a redirect to " + handler(t, httpprobe.Config{Port: "web"}).Endpoint(target) + ": status 200, but the body of 37 bytes does not contain the expected text"},
		"not http":       {httpprobe.Config{Path: "/garbage"}, ""},
		"the kubelet":    {httpprobe.Config{Path: "/health", Status: []string{"204"}, Compatibility: probe.Kubelet}, "status 200, want 204"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.config.Port = "web"
			got := attempt(t, test.config, target, plenty)
			if strings.Contains(got.Detail, "hunter2") || test.want != "" && got.Detail != test.want {
				t.Errorf("got the detail %q, want %q", got.Detail, test.want)
			}
		})
	}
	restricted := dial.WithAllow(t.Context(), func(string, netip.AddrPort) error { return nil })
	got := handler(t, httpprobe.Config{Port: "web", Path: "/health", Status: []string{"204"}}).Handler.Probe(restricted, target)
	if got.Detail != "status 200, want 204" {
		t.Errorf("a stranger gets the detail %q", got.Detail)
	}
}

func TestACancelledAttemptIsUnknown(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"before the head": func(w http.ResponseWriter, r *http.Request) {},
		"in the body": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.(http.Flusher).Flush()
		},
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), plenty)
			defer cancel()
			target := serve(t, func(w http.ResponseWriter, r *http.Request) {
				answer(w, r)
				cancel()
				<-r.Context().Done()
			})
			wantResult(t, handler(t, httpprobe.Config{Port: "web"}).Probe(ctx, target), probe.Unknown, probe.ReasonStopped)
		})
	}
}
