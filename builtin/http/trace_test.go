package httpprobe_test

import (
	"context"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
)

// traced makes an attempt, and returns its trace.
func traced(t *testing.T, c httpprobe.Config, target probe.Target) (probe.Result, probe.Trace) {
	t.Helper()
	h, err := httpprobe.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer h.(Handler).Close()
	ctx, cancel := context.WithTimeout(t.Context(), plenty)
	defer cancel()
	ctx, trace := probe.WithTrace(ctx)
	return h.Probe(ctx, target), trace()
}

func TestATraceHasTheResponse(t *testing.T) {
	const modified = "Mon, 02 Jan 2006 15:04:05 GMT"
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", modified)
		switch r.URL.Path {
		case "/from":
			http.Redirect(w, r, "/large", http.StatusFound)
		case "/large":
			w.Header().Set("Content-Length", "1000000")
			_, _ = w.Write([]byte(strings.Repeat("x", 1000000)))
		case "/chunked":
			w.(http.Flusher).Flush()
			_, _ = w.Write([]byte("abc"))
		case "/broken":
			w.Header().Set("Content-Length", "20000")
			_, _ = w.Write([]byte(strings.Repeat("x", 15000)))
		case "/500":
			w.Header().Del("Last-Modified")
			w.WriteHeader(500)
			_, _ = w.Write([]byte("sorry"))
		}
	})
	at, err := http.ParseTime(modified)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		outcome        probe.Outcome
		content, body  int64
		lastModifiedAt time.Time
	}{
		"/":        {probe.Success, 0, 0, at},
		"/from":    {probe.Success, 1000000, 1000000, at},
		"/chunked": {probe.Success, -1, 3, at},
		"/broken":  {probe.Success, 20000, 15000, at}, // the part that is checked has arrived
		"/500":     {probe.Failure, 5, 5, time.Time{}},
	} {
		for _, reuse := range []bool{false, true} {
			r, trace := traced(t, httpprobe.Config{Port: "web", Path: path, ReuseConnection: reuse}, target)
			got := trace.HTTP
			if got == nil || got.ContentLength != want.content || got.BodyLength != want.body || !got.LastModified.Equal(want.lastModifiedAt) || got.Transfer < 0 {
				t.Errorf("%s: the trace has %+v, want %+v", path, got, want)
			}
			if r.Outcome != want.outcome || trace.Peer != netip.MustParseAddr("127.0.0.1") || trace.TLS != nil {
				t.Errorf("%s is %v %q with %+v", path, r.Outcome, r.Detail, trace)
			}
		}
	}
	if r, trace := traced(t, httpprobe.Config{Port: "1"}, target); r.Outcome != probe.Failure || trace.HTTP != nil || trace.Peer != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("without a server: %+v, %+v", r, trace)
	}
}

// The trace of an attempt has the latest connection, even if it was a kept one.
func TestATraceHasTheCertificate(t *testing.T) {
	authority := dialtest.NewAuthority(t)
	own := authority.Sign(t, time.Hour, "127.0.0.1", "web.example", "www.example")
	target := serveTLS(t, serverConfig(own), true)
	c := httpprobe.Config{Port: "web", Scheme: "https", TLS: &httpprobe.TLS{CAFile: authority.File}, Status: []string{"100-599"}, ReuseConnection: true}
	h, err := httpprobe.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer h.(Handler).Close()
	for range 2 {
		ctx, trace := probe.WithTrace(t.Context())
		r := h.Probe(ctx, target)
		got := trace().TLS
		if got == nil {
			t.Fatalf("no trace of TLS: %+v", r)
		}
		if got.Version != "TLS 1.3" || got.Subject != own.Leaf.Subject.String() || got.Issuer != own.Leaf.Issuer.String() ||
			strings.Join(got.DNSNames, ",") != "web.example,www.example" || !got.FirstExpiry.Equal(own.Leaf.NotAfter) || got.LastChainExpiry.IsZero() {
			t.Errorf("the trace has %+v", got)
		}
		if sum, err := hex.DecodeString(got.SHA256); err != nil || len(sum) != 32 {
			t.Errorf("the fingerprint is %q", got.SHA256)
		}
	}
	no := false
	c.TLS, c.ReuseConnection = &httpprobe.TLS{Verify: &no}, false
	if _, trace := traced(t, c, target); trace.TLS == nil || !trace.TLS.LastChainExpiry.IsZero() {
		t.Errorf("without verification: %+v", trace.TLS)
	}
	c.TLS = nil
	if r, trace := traced(t, c, target); r.Reason != probe.ReasonTLSUntrusted || trace.TLS != nil {
		t.Errorf("a certificate that is not trusted: %+v, %+v", r, trace.TLS)
	}
}
