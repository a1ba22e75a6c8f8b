package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/sonde-probe/sonde/tests/gatewaytest"
)

// server answers calls, but lets the first one fail.
type server struct {
	failFirst func(s *server, w http.ResponseWriter, r *http.Request)
	calls     atomic.Int64
	begun     chan struct{} // is sent to when the client has the headers of a response, if there is room
}

// connection is the key of a request's connection in its context.
type connection struct{}

// serve serves until the test ends, and returns the address.
func (s *server) serve(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:   s,
		Protocols: new(http.Protocols),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connection{}, conn)
		},
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	w.Header().Set("Backend", "a")
	if s.calls.Add(1) == 1 {
		s.failFirst(s, w, r)
		return
	}
	_, _ = w.Write(make([]byte, 5)) // not compressed, of no bytes
	w.Header().Set("Grpc-Status", "0")
}

// The ways in which the first call fails.

// cutBegun cuts off an answer whose headers the client has.
func (s *server) cutBegun(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).Flush()
	<-s.begun
	s.cut(w, r)
}

// cut ends the connection: the client reads EOF.
func (s *server) cut(_ http.ResponseWriter, r *http.Request) {
	_ = r.Context().Value(connection{}).(*net.TCPConn).CloseWrite()
}

// refuse answers with an error.
func (s *server) refuse(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Grpc-Status", strconv.Itoa(int(codes.Internal)))
}

// headers tells a server that the client has the headers of a response.
type headers struct {
	attemptCounter
	of *server
}

// HandleRPC implements stats.Handler.
func (h headers) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InHeader); ok {
		select {
		case h.of.begun <- struct{}{}:
		default:
		}
	}
}

// gRPC's own policy repeats a call that ends with UNAVAILABLE, unless the client has the headers of
// its response. The interceptor repeats just those that the policy does not.
func TestCutCallsAreRepeated(t *testing.T) {
	policy := grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{
		"maxAttempts":3,"initialBackoff":"0.01s","maxBackoff":"0.01s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`)
	interceptor := grpc.WithUnaryInterceptor(retryUnanswered)
	for name, c := range map[string]struct {
		failFirst func(*server, http.ResponseWriter, *http.Request)
		option    grpc.DialOption
		attempts  int64
		code      codes.Code
	}{
		"cut after its headers, with a policy":         {(*server).cutBegun, policy, 1, codes.Unavailable},
		"cut after its headers, with the interceptor":  {(*server).cutBegun, interceptor, 2, codes.OK},
		"cut before its headers, with a policy":        {(*server).cut, policy, 2, codes.OK},
		"cut before its headers, with the interceptor": {(*server).cut, interceptor, 1, codes.Unavailable},
		"an error, with the interceptor":               {(*server).refuse, interceptor, 1, codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{failFirst: c.failFirst, begun: make(chan struct{}, 1)}
			conn, err := dial(s.serve(t), c.option, grpc.WithStatsHandler(headers{of: s}))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, attempts, err := call(t.Context(), conn)
			if status.Code(err) != c.code || attempts != c.attempts {
				t.Errorf("the call was sent %d times, and ends with %v; want %d, %v", attempts, err, c.attempts, c.code)
			}
		})
	}
}

func TestThePageHasTheInterceptor(t *testing.T) {
	const page = "../../../../docs/gateways/envoy.md"
	text, err := os.ReadFile("retry.go")
	if err != nil {
		t.Fatal(err)
	}
	if block := gatewaytest.CodeBlock(t, page, "go", "func retryUnanswered"); !strings.Contains(string(text), block) {
		t.Errorf("the page has\n%s\nwhich is not in retry.go:\n%s", block, text)
	}
}
