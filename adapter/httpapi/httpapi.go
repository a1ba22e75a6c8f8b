package httpapi

import (
	"cmp"
	"crypto/tls"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"time"

	"github.com/sonde-probe/sonde/engine"
)

// DefaultListen is where a Server listens unless told otherwise.
const DefaultListen = "127.0.0.1:9650"

// Bounds on what callers can make a Server do.
const (
	MaxConnections = 256              // open at once; further ones are closed
	MaxRequests    = 16               // answered at once under /v1 and not events; the next gets 503
	MaxSubscribers = 32               // streams of events at once; the next gets 503
	MaxListed      = 5000             // targets in one answer
	MaxListText    = 512              // bytes of a detail in a list
	MaxHeaderBytes = 16 << 10         // of a request
	WriteTimeout   = 30 * time.Second // to write an answer, or one event
	Heartbeat      = 15 * time.Second // from an event to the comment that shows that the stream lives
	ShutdownGrace  = 5 * time.Second  // to end requests when the server ends
)

// MinToken is the least length of a token in bytes. A shorter one could be
// guessed.
const MinToken = 16

// Engine is the part of *engine.Engine that is shown. Its methods are called
// from many goroutines at once.
type Engine interface {
	Targets() iter.Seq[engine.TargetStatus]
	Target(name string) (engine.TargetStatus, bool)
	Stats() engine.Stats
	Subscribe() *engine.Subscription
}

// Config is what to show, and to whom.
type Config struct {
	Engine  Engine       // required
	Metrics http.Handler // serves /metrics; default: 404

	// Alive and Ready say what is wrong, or nil: that the engine's loop does not
	// run, and that the engine does not do its work yet. They must return at
	// once, and are called from many goroutines at once. Default: nothing is
	// wrong.
	Alive func() error
	Ready func() error

	Listen string // host:port, where port 0 is one that the system chooses; default DefaultListen
	Token  string // callers must show it; MinToken bytes or more of printable ASCII; default: none
	TLS    TLS    // default: plain HTTP

	Logger *slog.Logger // for connections that went wrong; default: none
}

// Server is an http.Handler that serves the API, and what listens for it.
type Server struct {
	config   Config
	tls      *tls.Config // nil: plain HTTP
	handler  http.Handler
	requests slots
	streams  slots
}

// New returns a Server. It is an error if c.Listen is open to other machines
// while nothing asks callers who they are, if the token is too short, or if a
// file that c.TLS names cannot be used.
func New(c Config) (*Server, error) {
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	if c.Engine == nil {
		return nil, errors.New("the API has no engine to show")
	}
	if err := checkToken(c.Token); err != nil {
		return nil, err
	}
	secured, err := c.TLS.load()
	if err != nil {
		return nil, err
	}
	if err := CheckListen(c.Listen, c.guarded()); err != nil {
		return nil, err
	}
	s := &Server{
		config:   c,
		tls:      secured,
		requests: make(slots, MaxRequests),
		streams:  make(slots, MaxSubscribers),
	}
	s.handler = s.guard(s.routes())
	return s, nil
}

// ServeHTTP answers one request. It may be called by many goroutines at once.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/targets", s.limited(s.targets))
	mux.HandleFunc("/v1/targets/{name...}", s.limited(s.target))
	mux.HandleFunc("/v1/stats", s.limited(s.stats))
	mux.HandleFunc("/v1/events", s.events)
	mux.HandleFunc("/healthz", health(s.config.Alive))
	mux.HandleFunc("/readyz", health(s.config.Ready))
	if s.config.Metrics != nil {
		mux.Handle("/metrics", s.config.Metrics)
	}
	mux.HandleFunc("/", page)
	return mux
}

// open says which paths are served without a token.
func open(path string) bool {
	file, _ := pageFile(path)
	return file != "" || path == "/healthz" || path == "/readyz"
}

// slots counts what is under way, up to its capacity.
type slots chan struct{}

// take reports whether there was a slot left. If so, it must be given back.
func (s slots) take() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) giveBack() { <-s }

// limited serves at most MaxRequests at once.
func (s *Server) limited(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.requests.take() {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, "%d requests are under way, which is the limit", MaxRequests)
			return
		}
		defer s.requests.giveBack()
		serve(w, r)
	}
}
