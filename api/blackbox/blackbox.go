// Package blackbox serves /probe?target=…&module=… as Prometheus' blackbox_exporter does: it makes one attempt at the
// target, and responds with the results as metrics of the same names.
//
// An attempt that could not be made for a reason of this machine, or of a plugin, is not a failure of the target: the
// response is an error then, and Prometheus records that the scrape has failed.
//
//	blackbox.go  Server: access to modules and targets, and the response
//	request.go   parses a request
//	allow.go     which hosts may be probed
//	metrics.go   the metrics of an attempt
package blackbox

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/probe"
)

// Limits of a Server.
const (
	maxAttempts  = 128              // at once; further requests get status 503
	maxTarget    = 2048             // bytes of the parameter target
	writeTimeout = 10 * time.Second // for a response
)

// Module is how targets are probed for requests that name it.
type Module struct {
	// Handler makes the attempts. It connects to the port PortName of its target, or needs no port if that is empty. If it
	// is a urlHandler, like that of http, targets can be URLs.
	Handler     probe.Handler
	HandlerName string // metrics of "http", "icmp" and "tcp" are those of blackbox_exporter's probers with these names
	PortName    string

	// Port is the port of a target that a request names without one: a number, or the name of a port of a target of the
	// engine. Default: the port of the URL's scheme.
	Port string

	Timeout  time.Duration // of an attempt; default: the remaining time of the request
	Allow    []string      // targets that may be probed in addition to those of the engine: see CheckAllowed
	Settings string        // of the handler as text, without secrets, for debug=true
}

// engineReader is the subset of *engine.Engine that a Server uses.
type engineReader interface {
	Target(name string) (engine.TargetStatus, bool)
	Health() engine.Health
}

// Server is the http.Handler of /probe. It is safe for concurrent use by multiple goroutines.
type Server struct {
	// ShowsSettings reports whether the client of a request with that context may read Module.Settings. It must be set
	// before the first request; nil: all clients may.
	ShowsSettings func(context.Context) bool

	engine  engineReader
	modules atomic.Pointer[map[string]*module]
	places  chan struct{} // holds an element for each attempt in progress
}

// module is a Module with its parsed Allow.
type module struct {
	Module
	allow []allowed
}

// New returns a Server without modules.
func New(e engineReader) *Server {
	s := &Server{engine: e, places: make(chan struct{}, maxAttempts)}
	s.modules.Store(&map[string]*module{})
	return s
}

// Plan prepares the modules of all, by name, and changes nothing; commit applies them. Attempts under way continue. An
// error is that of CheckAllowed.
func (s *Server) Plan(all map[string]Module) (commit func(), err error) {
	next := make(map[string]*module, len(all))
	for name, m := range all {
		next[name] = &module{Module: m}
		for _, text := range m.Allow {
			a, err := parseAllowed(text)
			if err != nil {
				return nil, fmt.Errorf("module %q allows %q: %w", name, text, err)
			}
			next[name].allow = append(next[name].allow, a)
		}
	}
	return func() { s.modules.Store(&next) }, nil
}

// ServeHTTP makes the requested attempt.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := s.attempt(r)
	if err != nil {
		respond(w, err.status, err.text+"\n")
		return
	}
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	default:
		respond(w, http.StatusServiceUnavailable, fmt.Sprintf("too many attempts: the limit is %d at once\n", cap(s.places)))
		return
	}
	result, trace := a.make(r.Context())
	shown := metrics(a.module, &result, &trace).text()
	status, problem := s.judge(a, &result)
	switch {
	case r.URL.Query().Get("debug") == "true":
		respond(w, status, a.debug(&result, problem, shown, s.ShowsSettings == nil || s.ShowsSettings(r.Context())))
	case problem != "":
		respond(w, status, problem+"\n")
	default:
		respond(w, status, shown)
	}
}

func respond(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	// An error means that the ResponseWriter has no deadlines, or that the client has disconnected.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text))
}

// attempt is a requested attempt.
type attempt struct {
	name       string // of the module
	module     *module
	handler    probe.Handler // of the module, or derived from it
	target     probe.Target
	configured bool // the target is a target of the engine
	timeout    time.Duration
	scheme     string // of the module, if it has credentials
}

// make makes the attempt. It ends early when the client disconnects.
func (a *attempt) make(ctx context.Context) (probe.Result, probe.Trace) {
	ctx, trace := probe.WithTrace(dial.WithAllow(ctx, a.mayConnect))
	rule := probe.Rule{Timeout: a.timeout, Period: a.timeout} // with a longer period an engine that is not well would allow more time
	result := engine.Once(ctx, probe.Probe{Rule: rule, Target: a.target, Handler: a.handler, HandlerName: a.module.HandlerName})
	return result, trace()
}

// judge returns the status of the response and, if that is an error, its text.
func (s *Server) judge(a *attempt, r *probe.Result) (status int, problem string) {
	switch {
	case r.Outcome == probe.Unknown && (r.Reason.IsNeverCounted() || r.Reason == probe.ReasonStopped):
		return http.StatusServiceUnavailable, fmt.Sprintf("the attempt could not be made: %s: %s", r.Reason, r.Detail)
	case r.Outcome == probe.Unknown:
		return http.StatusInternalServerError, fmt.Sprintf("the attempt could not be made: %s: %s", r.Reason, r.Detail)
	case r.Outcome == probe.Failure && s.isCutOff(a.target.Address, r.Reason.Evidence()):
		return http.StatusServiceUnavailable, fmt.Sprintf("the engine is isolated, so a missing response proves nothing: %s: %s", r.Reason, r.Detail)
	}
	return http.StatusOK, ""
}

// isCutOff reports whether a failure of a host with that evidence may be caused by the engine's own network.
func (s *Server) isCutOff(host string, e probe.Evidence) bool {
	if e != probe.Silent && e != probe.NameUnanswered {
		return false
	}
	h := s.engine.Health()
	_, err := netip.ParseAddr(host)
	return h.Isolated || h.NamesIsolated && err != nil
}

// debug returns the response to debug=true, in the same three parts as blackbox_exporter's.
func (a *attempt) debug(r *probe.Result, problem, metrics string, showsSettings bool) string {
	log := fmt.Sprintf("module=%q target=%q address=%q port=%d handler=%q timeout=%v\n", a.name, a.target.Name, a.target.Address,
		a.target.Ports[a.module.PortName], a.module.HandlerName, a.timeout)
	log += fmt.Sprintf("outcome=%v reason=%q tries=%d took=%v\n", r.Outcome, r.Reason, r.Tries, r.Took)
	if r.Detail != "" {
		log += fmt.Sprintf("detail=%q\n", r.Detail)
	}
	var settings strings.Builder
	text := a.module.Settings
	if !showsSettings {
		text = "# shown to clients with the token of token_file, and to the engine's user by its control socket"
	}
	for line := range strings.Lines(text) {
		settings.WriteString("  " + strings.TrimSuffix(line, "\n") + "\n")
	}
	if problem != "" {
		metrics = "# none: " + strings.Join(strings.Fields(problem), " ") + "\n"
	}
	return "Logs for the probe:\n" + log + "\n\n\nMetrics that would have been returned:\n" + metrics +
		"\n\n\nModule configuration:\n" + a.module.HandlerName + " {\n" + settings.String() + "}\n"
}

// urlHandler is a handler that can be used for any URL.
type urlHandler interface {
	// ForURL returns a handler for a URL, and the URL completed with defaults.
	ForURL(u *url.URL) (probe.Handler, *url.URL)
	CredentialScheme() string // the scheme of requests with credentials; empty without credentials
}
