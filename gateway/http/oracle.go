package httpgateway

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/probe"
)

// Oracle is the output for health checks of load balancers that ask about a server somewhere else than at the server:
// the status is 200 while it is in rotation, and 503 otherwise.
type Oracle struct {
	Listen string `hcl:"listen" doc:"address and port for health checks, such as 127.0.0.1:9778. Port 0 lets the system choose one"`
	Token  string `hcl:"token,optional,sensitive" doc:"bearer token that clients must send; listen can be an address that other machines reach then" default:"none; only this machine can ask"`
}

// Check returns what is wrong with the configuration: a *probe.FieldError, or nil.
func (o Oracle) Check() error { return access{o.Listen, o.Token}.check() }

// Output returns the output. The configuration must have passed Check.
func (o Oracle) Output() gateway.Output {
	return newServer(access{o.Listen, o.Token}, func(s *server) map[string]http.HandlerFunc {
		all, warnings := map[string]http.HandlerFunc{}, sparselog.New(s.session.Logger)
		ready := func(w http.ResponseWriter, r *http.Request) { s.ready(w, r, warnings) }
		for _, path := range []string{"/v1/ready", "/v1/ready/{target...}"} {
			all["GET "+path] = ready
			all["OPTIONS "+path] = ready // HAProxy's default method
		}
		return all
	})
}

// ready answers whether a member is in rotation.
func (s *server) ready(w http.ResponseWriter, r *http.Request, warnings *sparselog.Logger) {
	name := askedTarget(r)
	v, m, err := askedMember(s.session, name)
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case m == nil:
		s.refuse(w, http.StatusNotFound, "no group of this gateway has the target "+strconv.QuoteToASCII(probe.CleanText(name, probe.MaxTargetName)))
		return
	case !m.InRotation:
		http.Error(w, outOfRotation(m), http.StatusServiceUnavailable)
	case v.Frozen && v.Last == probe.GatewayUndecided:
		writeLine(w, "undecided: nothing is known yet, all are used")
	default:
		writeLine(w, m.State.String())
	}
	if err != nil {
		warnings.Warn("ambiguous address in health check: several members have it", "error", err)
	}
	s.session.Succeeded()
}

func writeLine(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text + "\n")) // the client has gone otherwise
}

// outOfRotation says why a member is not in rotation.
func outOfRotation(m *group.Member) string {
	if m.Reason == "" || m.State.TakesRequests() {
		return m.State.String()
	}
	return m.State.String() + ": " + string(m.Reason)
}

// askedTarget returns which target a request is about: that of its path, of X-Target, or of
// HAProxy's header, whose name is that of a backend, a slash, and that of a server.
func askedTarget(r *http.Request) string {
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

// askedMember returns the member that a name means, as gateway.Session.Member does. The part before a slash
// may also be the name of a backend.
func askedMember(s *gateway.Session, name string) (*group.View, *group.Member, error) {
	v, m, err := s.Member(name)
	if _, server, ok := strings.Cut(name, "/"); m == nil && ok {
		return s.Member(server)
	}
	return v, m, err
}
