// Package httpgateway has the outputs that answer requests by HTTP. A server listens, decides who may ask, waits for
// changes and reports; a format, such as Consul, reads the requests of its clients and renders the answers.
//
//	server.go     server: the listener, and who may ask
//	query.go      what a request asks for: waits for an answer, and gives it
//	answers.go    answers that clients share
//	directory.go  answers that are written to files
//	oracle.go     Oracle: health checks of load balancers, such as http-check of HAProxy
//	prometheus.go Prometheus: its service discovery by HTTP
//	traefik.go    Traefik: its HTTP provider
//	consul.go     Consul: the paths and blocking queries of its clients
//	catalog.go    what clients of Consul get
//	envoy.go      Envoy: endpoint discovery by REST, and as files
//	discovery.go  requests and responses of endpoint discovery
//	endpoints.go  members as Envoy has them, also for xDS
package httpgateway

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
)

// Bounds on what clients may ask.
const (
	maxConnections = 1024
	maxWaiting     = 512         // requests that wait for a change at once
	maxRequest     = 1 << 20     // bytes of a body; that of Envoy says which extensions it has
	graceTimeout   = time.Second // for answers to end when the output does
)

// server is an output that answers requests by HTTP, in one format.
type server struct {
	access access
	format format
	files  *directory // nil for none

	session *gateway.Session // that of Run
	waiters *listener.Waiters
	answers answers
}

// format returns the handlers of a server that runs, by the patterns of http.ServeMux.
type format func(*server) map[string]http.HandlerFunc

func newServer(a access, f format) *server {
	return &server{access: a, format: f, waiters: listener.NewWaiters(maxWaiting)}
}

// Run implements gateway.Output.
func (s *server) Run(ctx context.Context, session *gateway.Session) {
	s.session = session
	var writing sync.WaitGroup
	defer writing.Wait()
	if s.files != nil {
		writing.Go(func() { s.files.write(ctx, s) })
	}
	if s.access.listen == "" {
		return
	}
	mux := http.NewServeMux()
	for pattern, handler := range s.format(s) {
		mux.HandleFunc(pattern, handler)
	}
	server := listener.HTTP{MaxConnections: maxConnections, Grace: graceTimeout, Handler: s.admitting(mux)}
	session.Listen(ctx, s.access.listen, listener.ForUser, server.Serve)
}

// admitting returns a handler of the requests that may be answered, which another one answers.
func (s *server) admitting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, problem := s.access.admits(r); status != 0 {
			w.Header().Set("Connection", "close") // its place is for others
			s.refuse(w, status, problem)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		next.ServeHTTP(w, r)
	})
}

// refuse answers a request with an error that is the client's.
func (s *server) refuse(w http.ResponseWriter, status int, problem string) {
	s.session.Refused()
	http.Error(w, problem, status)
}

// access is where a server listens, and whom it answers.
type access struct {
	listen string // address and port
	token  string // that clients must send; empty for none
}

// check returns what is wrong with the arguments listen and token: a *probe.FieldError, or nil.
func (a access) check() error {
	loopback, valid := listener.Loopback(a.listen)
	problem := listener.Token(a.token).Problem()
	switch {
	case !valid:
		return &probe.FieldError{Field: "listen", Problem: listener.AddressProblem(a.listen), Hint: `write an IP address and a number, for example listen = "127.0.0.1:9778"`}
	case problem != "":
		return &probe.FieldError{Field: "token", Problem: problem, Hint: listener.TokenHint, Plain: true}
	case a.token == "" && !loopback:
		return &probe.FieldError{Field: "listen", Problem: "is reachable from other machines without authentication", Hint: `add token = sensitive(trimspace(file("/etc/sonde/gateway.token"))), or listen on 127.0.0.1`}
	}
	return nil
}

// admits returns the status and the text for a request that is not answered, or 0: one without the token, or one of a
// browser for another site's page.
func (a access) admits(r *http.Request) (status int, problem string) {
	switch {
	case a.token == "" && !isLocal(r.Host):
		return http.StatusForbidden, "host is " + strconv.QuoteToASCII(probe.CleanText(r.Host, 80)) + ": without a token it must be a loopback address or a name without a dot"
	case listener.CrossSite(r):
		return http.StatusForbidden, "cross-site request rejected"
	case !listener.Token(a.token).Matches(cmp.Or(listener.Bearer(r), r.Header.Get("X-Consul-Token"))): // as Consul's clients send it
		return http.StatusUnauthorized, "missing or wrong token: send the header Authorization: Bearer <token>"
	}
	return 0, ""
}

// isLocal reports whether no name on the internet is that of a request: a page of another
// site cannot make a browser send it. HAProxy sends none, and Envoy the name of a cluster.
func isLocal(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	return dial.IsLoopback(name) || !strings.ContainsAny(name, ".:")
}
