package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/examples/wasm-probes/internal/lab"
	"github.com/sonde-probe/sonde/guest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

// The test in this file has the cases of upstream's pkg/probe/grpc, and the call errors for which
// the kubelet has messages; tests/upstream.md compares both.

// health responds to calls of Check with a given state, or with another gRPC status.
type health struct {
	state  byte
	status string        // default: ok
	sleeps time.Duration // before the response, or until the caller disconnects
}

func (h health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(h.sleeps):
	case <-r.Context().Done():
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", statusOK)
	if h.status != "" {
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", h.status)
		return
	}
	_, _ = w.Write([]byte{0, 0, 0, 0, 2, responseStatus << 3, h.state})
}

// serveHealth serves HTTP/2, or only HTTP/1, and returns the port.
func serveHealth(t *testing.T, h http.Handler, http2 bool) (port string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(!http2)
	server.Protocols.SetUnencryptedHTTP2(http2)
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port
}

func TestUpstreamGrpcProber(t *testing.T) {
	plain := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "res") })
	tests := []struct {
		name    string
		handler http.Handler
		http2   bool
		outcome guest.Outcome
		reason  string // prefix of the reason
		detail  string // text in the detail
	}{
		{"a server of HTTP/1", plain, false, guest.Failure, "grpc.protocol", ""},
		{"not serving", health{state: 2}, true, guest.Failure, "grpc.not_serving", "NOT_SERVING"},
		{"too slow", health{state: serving, sleeps: time.Hour}, true, guest.Failure, "tcp.timeout", ""},
		{"serving", health{state: serving}, true, guest.Success, "", "SERVING"},
		{"a server without the protocol", health{status: unimplemented}, true, guest.Failure, "grpc.unimplemented", "grpc.health.v1.Health"},
		{"a service that is not known", health{status: notFound}, true, guest.Failure, "grpc.service_unknown", ""},
		{"another status", health{status: "13"}, true, guest.Failure, "grpc.status", "status 13"},
	}
	lab.Both(t, attempt, func(t *testing.T, way lab.Way) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				probing := way.Must(t, `{"port": "`+serveHealth(t, test.handler, test.http2)+`"}`)
				if test.reason == "tcp.timeout" {
					lab.TimesOut(t, probing, 300*time.Millisecond, test.reason)
					return
				}
				if r := probing(lab.Timeout); r.Outcome != test.outcome || !strings.HasPrefix(r.Reason, test.reason) || !strings.Contains(r.Detail, test.detail) {
					t.Errorf("got %+v, want %v %q with %q", r, test.outcome, test.reason, test.detail)
				}
			})
		}
		t.Run("connection refused", func(t *testing.T) {
			// The kubelet retries until its timeout; here a refused connection is a result.
			if r := way.Must(t, `{"port": "`+gatewaytest.FreePort(t)+`"}`)(lab.Timeout); r.Outcome != guest.Failure || r.Reason != "tcp.refused" {
				t.Errorf("got %+v", r)
			}
		})
	})
}
