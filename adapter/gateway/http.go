package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Bounds on what the clients of an HTTP listener may ask.
const (
	maxConnections = 1024 // at once; further ones are closed without an answer
	maxHeader      = 16 << 10
	minToken       = 16 // bytes
	headerTimeout  = 5 * time.Second
	readTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	endTimeout     = time.Second // for answers to end when the output does
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
	host, port, err := net.SplitHostPort(h.Listen)
	_, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || portErr != nil:
		return &probe.FieldError{Field: "listen", Problem: "must be an address and a port number", Hint: `write an IP address and a number, for example listen = "127.0.0.1:9778"`}
	case h.Token != "" && len(h.Token) < minToken:
		return probe.FieldErrorf("token", "has %d bytes, it needs %d or more", len(h.Token), minToken)
	case strings.ContainsFunc(h.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return probe.FieldErrorf("token", "must be printable ASCII without spaces")
	case h.Token == "" && !dial.IsLoopback(host):
		return &probe.FieldError{Field: "listen", Problem: "is reachable from other machines without authentication", Hint: `add token = sensitive(trimspace(file("/etc/sonde/gateway.token"))), or listen on 127.0.0.1`}
	}
	return nil
}

// Serve answers requests with a handler until ctx is done. A request without the token, and
// one of a browser for another site's page, does not reach it.
func (h HTTP) Serve(ctx context.Context, s *Session, handler http.Handler) {
	s.Listen(ctx, h.Listen, func(ctx context.Context, l net.Listener) error {
		var open sync.WaitGroup // connections
		defer open.Wait()
		server := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if status, problem := h.admits(r); status != 0 {
					s.Refused()
					w.Header().Set("Connection", "close") // its place is for others
					http.Error(w, problem, status)
					return
				}
				handler.ServeHTTP(w, r)
			}),
			BaseContext:       func(net.Listener) context.Context { return ctx },
			ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelWarn),
			MaxHeaderBytes:    maxHeader,
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
			ConnState: func(_ net.Conn, state http.ConnState) {
				switch state {
				case http.StateNew:
					open.Add(1)
				case http.StateClosed:
					open.Done()
				}
			},
		}
		var closed sync.WaitGroup
		defer closed.Wait()
		ended := make(chan struct{})
		defer close(ended)
		closed.Go(func() {
			select {
			case <-ctx.Done():
			case <-ended:
			}
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
			if server.Shutdown(grace) != nil {
				server.Close()
			}
		})
		return server.Serve(&boundedListener{Listener: l, session: s, places: make(chan struct{}, maxConnections)})
	})
}

// admits returns the status and the text for a request that is not answered, or 0.
func (h HTTP) admits(r *http.Request) (status int, problem string) {
	switch {
	case h.Token == "" && !isLocal(r.Host):
		return http.StatusForbidden, "host is " + strconv.QuoteToASCII(probe.CleanText(r.Host, 80)) + ": without a token it must be a loopback address or a name without a dot"
	case h.Token == "" && (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" && r.Header.Get("Sec-Fetch-Site") != "none"):
		return http.StatusForbidden, "cross-site request rejected"
	case h.Token != "" && !h.hasToken(r):
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

// hasToken reports whether a request has the token. It compares in constant time.
func (h HTTP) hasToken(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = r.Header.Get("X-Consul-Token") // of Consul's clients
	}
	shown, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(h.Token))
	return subtle.ConstantTimeCompare(shown[:], want[:]) == 1
}

// boundedListener closes connections beyond a limit.
type boundedListener struct {
	net.Listener
	session *Session
	places  chan struct{} // one for each open connection
}

func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			if !IsTemporary(err) {
				return nil, err
			}
			b.session.Failed(err) // the server waits
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &boundedConn{Conn: conn, release: sync.OnceFunc(func() { <-b.places })}, nil
		default:
			conn.Close()
			b.session.Failed(errors.New("too many connections: the limit is " + strconv.Itoa(maxConnections)))
		}
	}
}

// IsTemporary reports whether accepting a connection may succeed later: no descriptors were
// left, for example.
func IsTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}

// Listen listens at an address until ctx is done, and calls serve, which returns an error when
// the listener fails, or ctx is done. What fails is reported, and tried again.
func (s *Session) Listen(ctx context.Context, address string, serve func(context.Context, net.Listener) error) {
	for ctx.Err() == nil {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			s.Listens(l.Addr().String())
			err = serve(ctx, l)
			l.Close()
		}
		if ctx.Err() != nil {
			return
		}
		s.Failed(err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// Answer returns a handler that responds with what of makes of the Views that Kept returns.
func (s *Session) Answer(of func([]*group.View) any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		views := s.Kept()
		if slices.Contains(views, nil) {
			Undecided(w)
			return
		}
		s.Respond(w, of(views))
	}
}

// Respond answers a request with JSON, and reports that.
func (s *Session) Respond(w http.ResponseWriter, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		s.Failed(err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(append(text, '\n')); err == nil {
		s.Succeeded()
	}
}

// Undecided answers a request before it is known what to answer: clients keep what they
// have.
func Undecided(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "the state of a group is not known yet: keep what there is, and ask again", http.StatusServiceUnavailable)
}
