package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/probe"
)

// Bounds on what the clients of an HTTP listener may ask.
const (
	maxConnections = 1024
	graceTimeout   = time.Second // for answers to end when the output does
	retryInterval  = time.Second // between attempts to listen
)

// HTTP is where an output answers HTTP requests, and whom.
type HTTP struct {
	Listen string // address and port
	Token  string // that clients must send; empty for none
}

// Check returns what is wrong with the arguments listen and token: a *probe.FieldError, or
// nil.
func (h HTTP) Check() error {
	loopback, valid := listener.Loopback(h.Listen)
	problem := listener.Token(h.Token).Problem()
	switch {
	case !valid:
		return &probe.FieldError{Field: "listen", Problem: "must be an address and a port number", Hint: `write an IP address and a number, for example listen = "127.0.0.1:9778"`}
	case problem != "":
		return &probe.FieldError{Field: "token", Problem: problem}
	case h.Token == "" && !loopback:
		return &probe.FieldError{Field: "listen", Problem: "is reachable from other machines without authentication", Hint: `add token = sensitive(trimspace(file("/etc/sonde/gateway.token"))), or listen on 127.0.0.1`}
	}
	return nil
}

// Serve answers requests with a handler until ctx is done. A request without the token, and
// one of a browser for another site's page, does not reach it.
func (h HTTP) Serve(ctx context.Context, s *Session, handler http.Handler) {
	server := listener.HTTP{MaxConnections: maxConnections, Grace: graceTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, problem := h.admits(r); status != 0 {
			s.Refused()
			w.Header().Set("Connection", "close") // its place is for others
			http.Error(w, problem, status)
			return
		}
		handler.ServeHTTP(w, r)
	})}
	s.Listen(ctx, h.Listen, listener.ForUser, func(ctx context.Context, l net.Listener) error {
		return server.Serve(ctx, l)
	})
}

// admits returns the status and the text for a request that is not answered, or 0.
func (h HTTP) admits(r *http.Request) (status int, problem string) {
	switch {
	case h.Token == "" && !isLocal(r.Host):
		return http.StatusForbidden, "host is " + strconv.QuoteToASCII(probe.CleanText(r.Host, 80)) + ": without a token it must be a loopback address or a name without a dot"
	case listener.CrossSite(r):
		return http.StatusForbidden, "cross-site request rejected"
	case !listener.Token(h.Token).Matches(cmp.Or(listener.Bearer(r), r.Header.Get("X-Consul-Token"))): // as Consul's clients send it
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

// reportingListener reports that connections cannot be accepted for now, and that they can again.
type reportingListener struct {
	net.Listener
	session *Session
}

// Accept implements net.Listener.
func (l reportingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	switch {
	case err == nil:
		l.session.Cured(SourceListener)
	case IsTemporary(err):
		l.session.Failed(SourceListener, err)
	}
	return conn, err
}

// IsTemporary reports whether accepting a connection may succeed later: no descriptors were
// left, for example.
func IsTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

// Listen listens by listener.Listen until ctx is done, and calls serve, which returns an error
// when the listener fails, or ctx is done. What fails is reported, and tried again: that the listener
// fails for now, too, so serve goes on then, as the servers of net/http and gRPC do.
func (s *Session) Listen(ctx context.Context, address string, mode fs.FileMode, serve func(context.Context, net.Listener) error) {
	for ctx.Err() == nil {
		l, err := listener.Listen(ctx, address, mode)
		if err == nil {
			s.Listens(l.Addr().String())
			err = serve(ctx, reportingListener{l, s})
			l.Close()
		}
		if ctx.Err() != nil {
			return
		}
		s.Failed(SourceListener, err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// Handler returns a handler that responds with what of makes of the Views that Kept returns.
func (s *Session) Handler(of func([]*group.View) any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		views := s.Kept()
		if slices.Contains(views, nil) {
			Undecided(w)
			return
		}
		s.Respond(w, "", views, func() any { return of(views) })
	}
}

// Respond answers a request with a query with what of returns, as JSON. It depends on nothing but
// the query, and the Views. Respond reports that, or which members of the Views of Kept have no
// address: the answer cannot have them.
func (s *Session) Respond(w http.ResponseWriter, query string, views []*group.View, of func() any) {
	answer, release, err := s.Share(query, views, func() (Answer, error) {
		text, err := json.Marshal(of())
		return Answer{Text: append(text, '\n')}, err
	})
	if err != nil {
		s.Busy(w, err)
		return
	}
	defer release()
	if !Write(w, answer.Text) {
		return
	}
	results := s.Unreachable()
	results[SourceAnswer] = nil
	s.Report(results)
}

// Share returns the answer to a query about some views, and a function to call when it has been
// given to the client. It is made by of, which depends on nothing else, unless it has been made for
// another client: thousands of them may wait for a change of a large group. An error is for Busy.
func (s *Session) Share(query string, views []*group.View, of func() (Answer, error)) (Answer, func(), error) {
	return s.answers.get(query, views, of)
}

// Busy answers a request for which there is no answer by an error of Share. Clients keep what they
// have.
func (s *Session) Busy(w http.ResponseWriter, err error) {
	s.Failed(SourceAnswer, err)
	w.Header().Set("Retry-After", "1")
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// Write gives a client a text of JSON, and reports whether it has read that. It disconnects a
// client that does not read.
func Write(w http.ResponseWriter, text []byte) bool {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, err := listener.Paced(w).Write(text)
	return err == nil
}

// Undecided answers a request before it is known what to answer: clients keep what they
// have.
func Undecided(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "the state of a group is not known yet: keep what there is, and ask again", http.StatusServiceUnavailable)
}

// Stopping answers a request that has waited until the gateway ended: clients keep what they
// have.
func Stopping(w http.ResponseWriter) {
	http.Error(w, "the server stops", http.StatusServiceUnavailable)
}
