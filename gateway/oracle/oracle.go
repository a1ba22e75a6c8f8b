// Package oracle answers the health checks of load balancers that ask about a server somewhere
// else than at the server: status 200 while it is in rotation, and 503 otherwise.
package oracle

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
)

// Config configures an Oracle.
type Config struct {
	Listen string `hcl:"listen" doc:"address and port for health checks, such as 127.0.0.1:9778. Port 0 lets the system choose one"`
	Token  string `hcl:"token,optional,sensitive" doc:"bearer token that clients must send; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
}

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (c Config) Check() error { return gateway.HTTP(c).Check() }

// Oracle is an output for health checks by HTTP.
type Oracle struct {
	http    gateway.HTTP
	session *gateway.Session
}

// New returns an Oracle. The configuration must have passed Check.
func New(c Config) *Oracle { return &Oracle{http: gateway.HTTP(c)} }

// Run implements gateway.Output.
func (o *Oracle) Run(ctx context.Context, s *gateway.Session) {
	o.session = s
	mux := http.NewServeMux()
	for _, pattern := range []string{"/v1/ready", "/v1/ready/{target...}"} {
		mux.HandleFunc("GET "+pattern, o.ready)
		mux.HandleFunc("OPTIONS "+pattern, o.ready) // HAProxy's default method
	}
	o.http.Serve(ctx, s, mux)
}

// ready answers whether a member is in rotation.
func (o *Oracle) ready(w http.ResponseWriter, r *http.Request) {
	name := target(r)
	v, m, err := o.member(name)
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case m == nil:
		o.session.Refused()
		o.session.Cured(gateway.SourceName(name))
		http.Error(w, "no group of this gateway has the target "+strconv.QuoteToASCII(probe.CleanText(name, probe.MaxTargetName)), http.StatusNotFound)
		return
	case !m.InRotation:
		http.Error(w, reason(m), http.StatusServiceUnavailable)
	case v.Frozen && v.Last == group.Undecided:
		answer(w, "undecided: nothing is known yet, all are used")
	default:
		answer(w, m.State.String())
	}
	o.session.Report(map[string]error{gateway.SourceName(name): err})
}

func answer(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text + "\n")) // the client has gone otherwise
}

// reason says why a member is not in rotation.
func reason(m *group.Member) string {
	if m.Reason == "" || m.State.TakesRequests() {
		return m.State.String()
	}
	return m.State.String() + ": " + string(m.Reason)
}

// target returns which target a request is about: that of its path, of X-Target, or of
// HAProxy's header, whose name is that of a backend, a slash, and that of a server.
func target(r *http.Request) string {
	if name := r.PathValue("target"); name != "" {
		return name
	}
	if name := r.Header.Get("X-Target"); name != "" {
		return name
	}
	for field := range strings.SplitSeq(r.Header.Get("X-Haproxy-Server-State"), ";") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(field), "name="); ok {
			return name
		}
	}
	return ""
}

// member returns the member that a name means, as gateway.Session.Member does. The part before a slash
// may also be the name of a backend.
func (o *Oracle) member(name string) (*group.View, *group.Member, error) {
	v, m, err := o.session.Member(name)
	if _, server, ok := strings.Cut(name, "/"); m == nil && ok {
		return o.session.Member(server)
	}
	return v, m, err
}
