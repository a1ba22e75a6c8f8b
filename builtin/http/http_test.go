package httpprobe_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
)

// plenty is a timeout that should not expire, and short is one that should.
const (
	plenty = time.Minute
	short  = 100 * time.Millisecond
)

// quiet is the error log of servers whose errors are expected by the test.
var quiet = log.New(io.Discard, "", 0)

func handler(t testing.TB, c httpprobe.Config) prober {
	t.Helper()
	h, err := httpprobe.New(c)
	if err != nil {
		t.Fatalf("New(%+v): %v", c, err)
	}
	p := prober{h.(Handler), inSteps(t)}
	t.Cleanup(func() { p.Close() })
	return p
}

// targetOf returns a target with the address of a server, and its port named "web".
func targetOf(addr net.Addr) probe.Target {
	at := netip.MustParseAddrPort(addr.String())
	return probe.Target{Name: "test", Address: at.Addr().String(), Ports: map[string]uint16{"web": at.Port()}}
}

func serve(t testing.TB, f http.HandlerFunc) probe.Target {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return targetOf(s.Listener.Addr())
}

func attempt(t testing.TB, c httpprobe.Config, target probe.Target, timeout time.Duration) probe.Result {
	t.Helper()
	h := handler(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return h.Probe(ctx, target)
}

func wantResult(t testing.TB, got probe.Result, outcome probe.Outcome, reason probe.Reason) {
	t.Helper()
	if got.Outcome != outcome || got.Reason != reason {
		t.Errorf("got %v %q (%s), want %v %q", got.Outcome, got.Reason, got.Detail, outcome, reason)
	}
}

func TestAnAcceptedStatusIsSuccess(t *testing.T) {
	target := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200) })
	got := attempt(t, httpprobe.Config{Port: "web"}, target, plenty)
	wantResult(t, got, probe.Success, "")
	if got.Detail != "status 200" {
		t.Errorf("got the detail %q", got.Detail)
	}
	if got.Timings.Connect <= 0 || got.Timings.FirstByte <= 0 || got.Timings.Resolve != 0 || got.Timings.TLS != 0 {
		t.Errorf("got the timings %+v, want connect and first byte only", got.Timings)
	}
}
