package httpprobe_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/dialtest"
)

// forward forwards a request, with a timeout for the head of the response.
func forward(t *testing.T, r *http.Request, timeout time.Duration) probe.Observation {
	t.Helper()
	transport := &http.Transport{ResponseHeaderTimeout: timeout, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, seen, err := httpprobe.Forward(transport, r)
	if (response == nil) != (err != nil) {
		t.Fatalf("response %v, error %v", response, err)
	}
	if response != nil {
		response.Body.Close()
	}
	return seen
}

func wantSeen(t *testing.T, got probe.Observation, outcome probe.Outcome, reason probe.Reason) {
	t.Helper()
	if got.Outcome != outcome || got.Reason != reason || (got.Detail != "") != (reason != "") {
		t.Errorf("got %+v, want %v, %q", got, outcome, reason)
	}
}

func request(t *testing.T, target string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+target, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAForwardedRequestSaysHowItsServerIs(t *testing.T) {
	for status, want := range map[int]probe.Outcome{
		200: probe.Success, 204: probe.Success, 301: probe.Success, 404: probe.Success, 500: probe.Success, 501: probe.Success,
		502: probe.Failure, 503: probe.Failure, 504: probe.Failure,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		reason := probe.Reason("")
		if want == probe.Failure {
			reason = probe.ReasonHTTPStatus
		}
		wantSeen(t, forward(t, request(t, server.Listener.Addr().String(), strings.NewReader("x")), plenty), want, reason)
		server.Close()
		wantSeen(t, forward(t, request(t, server.Listener.Addr().String(), nil), plenty), probe.Failure, probe.ReasonTCPRefused)
	}
}

func TestAServerThatDoesNotAnswerFails(t *testing.T) {
	hangs := serveRaw(t, func(conn *net.TCPConn) { _, _ = io.Copy(io.Discard, conn) })
	resets := serveRaw(t, func(conn *net.TCPConn) { skip(conn); _ = conn.SetLinger(0) })
	closes := serveRaw(t, func(conn *net.TCPConn) { skip(conn) })
	for _, c := range []struct {
		target  probe.Target
		timeout time.Duration
		want    probe.Reason
	}{{hangs, short, probe.ReasonHTTPTimeout}, {resets, plenty, probe.ReasonTCPReset}, {closes, plenty, probe.ReasonTCPClosed}} {
		port, err := c.target.Port("web")
		if err != nil {
			t.Fatal(err)
		}
		address := (&net.TCPAddr{IP: net.ParseIP(c.target.Address), Port: int(port)}).String()
		wantSeen(t, forward(t, request(t, address, nil), c.timeout), probe.Failure, c.want)
	}
}

// roundTrip is a function as an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestWhatIsNotTheServersFaultSaysNothing(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	to := server.Listener.Addr().String()

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	wantSeen(t, forward(t, request(t, to, nil).WithContext(gone), plenty), probe.Unknown, probe.ReasonStopped)

	broken := errors.New("the client has sent half of its request")
	wantSeen(t, forward(t, request(t, to, iotest.ErrReader(broken)), plenty), probe.Unknown, "")

	for number, err := range dialtest.OwnErrors(t) {
		_, seen, _ := httpprobe.Forward(roundTrip(func(*http.Request) (*http.Response, error) { return nil, err }), request(t, to, nil))
		if seen.Outcome != probe.Unknown {
			t.Errorf("%v says %+v", number, seen)
		}
	}
}

// A transport closes the body of a failed request, so that reading it fails.
func TestABodyThatIsClosedIsNotTheClientsFault(t *testing.T) {
	broken := roundTrip(func(r *http.Request) (*http.Response, error) {
		r.Body.Close()
		if _, err := r.Body.Read(make([]byte, 1)); err == nil {
			t.Error("a closed body was read")
		}
		return nil, &net.OpError{Op: "read", Err: io.EOF}
	})
	body, w := io.Pipe()
	defer w.Close()
	_, seen, _ := httpprobe.Forward(broken, request(t, "10.0.0.7", body))
	wantSeen(t, seen, probe.Failure, probe.ReasonTCPClosed)
}
