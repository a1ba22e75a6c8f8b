package api

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"time"

	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/discover"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/internal/sparselog"
)

// DefaultListen is the default of Config.Listen.
const DefaultListen = "127.0.0.1:9650"

// Limits of a Server.
const (
	maxConnections  = 256                   // open at once; a new one then replaces the one that has been idle the longest
	maxRequests     = 16                    // in progress at once for /v1/targets, and for the rest of /v1 except event streams; others get status 503, those for changes of a group only after ten seconds
	maxSubscribers  = 32                    // event streams at once; others get status 503
	maxWaiters      = 96                    // requests at once that wait for a change of a group; others get status 503
	maxGroupWait    = time.Minute           // maximum wait of such a request
	MaxListed       = 5000                  // targets in one response
	maxListedProbes = 10_000                // probes in one response; no more targets are added beyond it
	maxListText     = 512                   // bytes of each detail in a list
	writeTimeout    = listener.WriteTimeout // to write a response, or one event
	heartbeat       = 15 * time.Second      // between events or comments of a stream
	shutdownGrace   = 5 * time.Second       // for requests in progress when the server stops
)

// engineReader is the subset of *engine.Engine, or of *engine.Union, that a Server uses. Its methods must be
// safe for concurrent use by multiple goroutines.
type engineReader interface {
	Select(ctx context.Context, f engine.Filter) iter.Seq[engine.TargetStatus]
	Count(ctx context.Context, f engine.Filter) int
	Target(name string) (engine.TargetStatus, bool)
	States() engine.TargetStates
	Records() engine.Records
	Stats() engine.Stats
	Subscribe() *engine.Subscription
	SubscribeTargets() *engine.TargetSubscription
}

// groupReader is the subset of *group.Groups that a Server uses.
type groupReader interface {
	Get(name string) *group.Group
	Views() []*group.View
}

// Config configures a Server.
type Config struct {
	Engine  engineReader // required; an *engine.Engine or an *engine.Union
	Others  Others       // which of the targets other engines probe; default: none
	Metrics http.Handler // serves /metrics; default: 404
	Probe   http.Handler // serves /probe, and limits how many requests are in progress; default: 404
	Groups  groupReader  // *group.Groups; default: there are no groups

	// Gateways returns the status of each gateway, sorted by name. Default: there are none.
	Gateways func() []group.GatewayStatus

	// Notifiers returns the status of each receiver of each notifier, sorted by name and receiver; their States may be
	// unset. TestNotifier sends a test notice to each receiver of a notifier, and returns the errors by receiver, and
	// whether the notifier exists. They must be safe for concurrent use by multiple goroutines. Default: there are none.
	Notifiers    func() []Notifier
	TestNotifier func(ctx context.Context, name string) (results map[string]error, ok bool)

	// Process returns the state of the processes of a target, apart from its instance, and whether it has any. It must not
	// block, and must be safe for concurrent use by multiple goroutines. Default: there are none.
	Process func(target string) (p Process, isProcess bool)

	// Alive returns an error while the engine is not running; Ready returns one while it makes no attempts or its verdicts
	// cannot be trusted (engine.Health). They must not block, and must be safe for concurrent use by multiple goroutines.
	// Default: never an error.
	Alive func() error
	Ready func() error

	// NameServers returns the name servers of this machine that do not respond, sorted by address. It must not block, and
	// must be safe for concurrent use by multiple goroutines. Default: all respond.
	NameServers func() []NameServer

	// Reload reads the configuration again and applies it, unless it has errors or, without force, a guard rejects it; then
	// Reload.Error says why. It returns when the reload has finished, or with an error when ctx is done; the reload may
	// continue. LastReload returns the result of the last reload. Plan returns what a reload with the engine's files, or
	// with others, would do, and changes nothing. They must be safe for concurrent use by multiple goroutines. Default: 404.
	Reload     func(ctx context.Context, force bool) (Reload, error)
	Plan       func(ctx context.Context, paths []string) (Plan, error)
	LastReload func() Reload

	// Operate carries out an operation on a target for an operator, or begins it. It returns whether that changes anything,
	// and whether the operation is in the state file; it waits for that, within limits. An error is ErrNoTarget, or says why
	// the operation is not possible. It must be safe for concurrent use by multiple goroutines. Default: 404.
	Operate func(ctx context.Context, target string, o Operation, by string) (changed, saved bool, err error)

	// Pause pauses or unpauses targets for an operator. It returns once that is in the state file, or cannot be saved. An
	// error is ErrNoTarget or ErrNoGroup, or says why the request is not possible. It must be safe for concurrent use by
	// multiple goroutines. Default: 404.
	Pause func(context.Context, PauseRequest) (Paused, error)

	// Traffic takes a gateway's report about a target, and reports whether the target exists and has a readiness probe. It
	// must not block, and must be safe for concurrent use by multiple goroutines. Default: 404.
	Traffic func(target string, t engine.Traffic) bool

	// Runtimes returns the container runtimes of targets, sorted by name: /readyz and metrics show which are unavailable. It
	// must not block, and must be safe for concurrent use. Default: none.
	Runtimes func() []Runtime

	// Discoveries returns the status of each source of targets, sorted by name. It must not block, and must be safe for
	// concurrent use by multiple goroutines. Default: there are none.
	Discoveries func() []discover.Status

	// Maintenances returns the current and next maintenances, sorted by time. It must not block, and must be safe for
	// concurrent use by multiple goroutines. Default: there are none.
	Maintenances func() []Maintenance

	// Cluster returns the state of the cluster of engines that share targets with this one. It must return within two
	// seconds, and must be safe for concurrent use by multiple goroutines. Default: 404.
	Cluster func() Cluster

	// Beats receives the beats of targets, and has the last one of each. Default: no beats are accepted.
	Beats *beatprobe.Registry

	// Self identifies this engine in one line, in the header HeaderEngine of responses to operators. NoControl returns why
	// the engine's user cannot reach the Server by a unix socket, or nil. They must not block, and must be safe for
	// concurrent use by multiple goroutines. Default: "sonde", and nil.
	Self      func() string
	NoControl func() error

	Version string // of the program, for the status page; default: not shown

	PublicBadges bool // badges need no token, and pages of other sites may embed them

	Listen string // host:port; port 0 lets the system choose; default DefaultListen
	Token  string // required of clients; printable ASCII of at least 16 bytes; default: none
	TLS    TLS    // default: plain HTTP

	Logger *slog.Logger // logs a Warn line per failed connection, and at most one per minute for rejected requests that would change the engine; default: none
}

// Server serves the API. It is an http.Handler, and can listen itself.
type Server struct {
	config   Config
	tls      *tls.Config // nil: plain HTTP
	handler  http.Handler
	lists    semaphore // for lists of targets: large responses, which slow clients keep in progress
	requests semaphore // for other requests
	streams  semaphore
	waiters  *listener.Waiters
	changes  semaphore         // reloads, plans and operations
	sparse   *sparselog.Logger // for rejected requests, which anyone can send in any number
}

// New returns a Server. It returns an error if other machines can reach c.Listen without authentication, if the token is
// too short, or if a file of c.TLS is missing or invalid.
func New(c Config) (*Server, error) {
	c.Listen = cmp.Or(c.Listen, DefaultListen)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Engine == nil {
		return nil, errors.New("api: Config.Engine is nil")
	}
	if problem := listener.Token(c.Token).Problem(); problem != "" {
		return nil, errors.New("token " + problem)
	}
	tlsConfig, err := c.TLS.Load()
	if err != nil {
		return nil, err
	}
	if err := checkListen(c.Listen, c.guarded()); err != nil {
		return nil, err
	}
	s := &Server{
		config:   c,
		tls:      tlsConfig,
		lists:    make(semaphore, maxRequests),
		requests: make(semaphore, maxRequests),
		streams:  make(semaphore, maxSubscribers),
		waiters:  listener.NewWaiters(maxWaiters),
		changes:  make(semaphore, maxChanges),
		sparse:   sparselog.New(c.Logger),
	}
	s.handler = s.guard(s.routes())
	return s, nil
}

// ServeHTTP implements http.Handler. It is safe for concurrent use by multiple
// goroutines.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// routes returns the handlers by method and path.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	handle := func(pattern string, h http.Handler) { mux.Handle(pattern, paced(h)) }
	handle("GET /v1/targets", s.lists.limit(s.targets))
	handle("GET /v1/targets/{name...}", s.requests.limit(plain(s.target)))
	handle("GET /v1/targets/{name}/history", s.requests.limit(plain(s.targetHistory)))
	handle("GET /v1/uptime", s.requests.limit(s.uptime))
	handle("GET /v1/groups", s.requests.limit(plain(s.groups)))
	handle("GET /v1/gateways", s.requests.limit(plain(s.gateways)))
	handle("GET /v1/discoveries", s.requests.limit(plain(s.config.discoveries)))
	handle("GET /v1/maintenance", s.requests.limit(plain(s.maintenance)))
	handle("GET /v1/cluster", s.requests.limit(plain(s.cluster)))
	handle("GET /v1/notifiers", s.requests.limit(plain(s.notifiers)))
	handle("GET /v1/reload", s.requests.limit(plain(s.lastReload)))
	handle("GET /v1/stats", s.requests.limit(plain(s.stats)))
	handle("/v1/beat/{name...}", answer(s.beat)) // GET and POST; a pattern with GET would allow HEAD too
	handle("GET /badge/{name...}", s.requests.limit(s.badge))
	handle("GET /healthz", health(s.config.Alive))
	handle("GET /readyz", answer(s.config.ready))
	mux.HandleFunc("GET /v1/groups/{name...}", s.group)
	mux.HandleFunc("GET /v1/events", s.events)
	mux.Handle("POST /v1/plan", s.changes.limit(s.plan))
	mux.Handle("POST /v1/reload", s.changes.limit(s.reload))
	handle("POST /v1/report", s.requests.limit(s.report))
	mux.Handle("POST /v1/targets/{name}/restart", s.changes.limit(s.operate(OperationRestart)))
	mux.Handle("POST /v1/targets/{name}/stop", s.changes.limit(s.operate(OperationStop)))
	mux.Handle("POST /v1/targets/{name}/start", s.changes.limit(s.operate(OperationStart)))
	mux.Handle("POST /v1/targets/{name}/pause", s.changes.limit(s.pause(OperationPause, false)))
	mux.Handle("POST /v1/targets/{name}/unpause", s.changes.limit(s.pause(OperationUnpause, false)))
	mux.Handle("POST /v1/groups/{name}/pause", s.changes.limit(s.pause(OperationPause, true)))
	mux.Handle("POST /v1/groups/{name}/unpause", s.changes.limit(s.pause(OperationUnpause, true)))
	mux.Handle("POST /v1/notifiers/{name}/test", s.changes.limit(s.testNotifier))
	if s.config.Metrics != nil {
		handle("GET /metrics", s.config.Metrics)
	}
	if s.config.Probe != nil {
		mux.Handle("GET /probe", s.config.Probe) // may take longer than writeTimeout
	}
	handle("GET /{$}", http.HandlerFunc(page))
	for path := range pageFiles {
		if path != "/" { // as a pattern it would match all paths
			handle("GET "+path, http.HandlerFunc(page))
		}
	}
	return mux
}

// paced returns a handler that disconnects clients that do not read its responses.
func paced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(listener.Paced(w), r) })
}

// public reports whether a path is served without a token.
func public(path string) bool {
	return pageFiles[path] != "" || path == "/healthz" || path == "/readyz"
}

// semaphore limits the number of requests in progress.
type semaphore chan struct{}

// acquire returns false if the semaphore is full. Otherwise the caller must release it.
func (s semaphore) acquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s semaphore) release() { <-s }

// acquireInTurn waits until it can acquire the semaphore, for at most turnTimeout. It returns false if it could not.
func (s semaphore) acquireInTurn(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// limit rejects requests while the semaphore is full.
func (s semaphore) limit(a answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.acquire() {
			s.refuse(w)
			return
		}
		defer s.release()
		a.ServeHTTP(w, r)
	})
}

// refuse responds to a request that could not acquire the semaphore.
func (s semaphore) refuse(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	respondError(w, errorf(http.StatusServiceUnavailable, "too many requests: the limit is %d at once", cap(s)))
}
