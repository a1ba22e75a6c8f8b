package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/listener"
	"github.com/sonde-probe/sonde/internal/sparselog"
	"github.com/sonde-probe/sonde/probe"
)

// checkListen returns an error if a Server must not listen on address. guarded is whether clients need a token or a
// certificate: without either, only loopback addresses are allowed, because other machines must not read what is probed.
func checkListen(address string, guarded bool) error {
	loopback, valid := listener.Loopback(address)
	switch {
	case !valid:
		return fmt.Errorf("listen is %q: write an address and a port number, such as %q", address, DefaultListen)
	case !guarded && !loopback:
		return fmt.Errorf("listen is %q, which other machines can reach without authentication: "+
			"set a token or client certificates, or listen on %s", address, DefaultListen)
	}
	return nil
}

// guarded reports whether clients need a token or a certificate.
func (c Config) guarded() bool { return c.Token != "" || c.TLS.ClientCAFile != "" }

// guard passes allowed requests to mux, and rejects the others. A POST, which may change the engine, must have the token
// or come from the engine's own user: a certificate is not enough, since browsers send it for any page. A beat needs
// only the token of its target.
func (s *Server) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		w.Header().Set(HeaderEngine, anyEngine)
		if err := s.check(w, r, mux); err != nil {
			respondError(w, err)
			return
		}
		if isOperator := isOwner(r.Context()) || r.Method == http.MethodPost && !strings.HasPrefix(r.URL.Path, beatPath); isOperator && s.config.Self != nil {
			w.Header().Set(HeaderEngine, probe.OneLine(s.config.Self(), maxSelf))
		}
		if s.config.guarded() {
			r = r.WithContext(context.WithValue(r.Context(), clientKey{}, true))
		}
		mux.ServeHTTP(w, r)
	})
}

// HeaderEngine is a header of all responses, by which a Client distinguishes an engine from other servers. For operators
// its value is Config.Self, and for others "sonde".
const HeaderEngine = "Sonde-Engine"

const anyEngine = "sonde" // the value of HeaderEngine that does not identify the engine

// maxSelf bounds the value of HeaderEngine, in bytes.
const maxSelf = 1 << 10

// check returns an error if a request must be rejected.
func (s *Server) check(w http.ResponseWriter, r *http.Request, mux *http.ServeMux) error {
	_, pattern := mux.Handler(r)
	if pattern == "" {
		if allowed := methods(mux, r); len(allowed) > 0 {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			return errorf(http.StatusMethodNotAllowed, "method not allowed: use %s", strings.Join(allowed, " or "))
		}
	}
	owner := isOwner(r.Context())
	switch {
	case owner && !listener.FromBrowser(r):
	case (owner || !s.config.guarded()) && !dial.IsLoopback((&url.URL{Host: r.Host}).Hostname()):
		logRejection(s.sparse, r, "host is not a loopback address")
		return errorf(http.StatusForbidden, "host is %q: without a token it must be localhost or a loopback address", r.Host)
	case s.config.isPublicBadge(r):
	case listener.CrossSite(r):
		logRejection(s.sparse, r, "cross-site request")
		return errorf(http.StatusForbidden, "cross-site request rejected")
	case owner: // the browser of the engine's user, which shows the page over the control socket
	case strings.HasPrefix(r.URL.Path, beatPath): // needs the token of its target
	case r.Method == http.MethodPost && s.config.Token == "":
		logRejection(s.sparse, r, "the engine has no token_file")
		if s.config.NoControl != nil {
			if why := s.config.NoControl(); why != nil {
				return errorf(http.StatusForbidden, "nobody is allowed to do this: the engine has no token_file, and no control socket: %v", why)
			}
		}
		return errorf(http.StatusForbidden, "only the engine's user on this machine may do this: the engine has no token_file")
	case !public(r.URL.Path) && !listener.Token(s.config.Token).Matches(listener.Bearer(r)):
		logRejection(s.sparse, r, "missing or wrong token")
		w.Header().Set("WWW-Authenticate", `Bearer realm="sonde"`)
		return errorf(http.StatusUnauthorized, "missing or wrong token: send the header Authorization: Bearer <token>")
	}
	if pattern == "" {
		return errorf(http.StatusNotFound, "unknown path %s", r.URL.Path)
	}
	return nil
}

// methods returns the methods with which a path is served.
func methods(mux *http.ServeMux, r *http.Request) (all []string) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		other := *r
		other.Method = method
		if _, pattern := mux.Handler(&other); pattern != "" {
			all = append(all, method)
		}
	}
	return all
}

// logRejection logs a rejected request if it would have changed the engine, at most once a minute.
func logRejection(log *sparselog.Logger, r *http.Request, why string) {
	if r.Method == http.MethodPost || strings.HasPrefix(r.URL.Path, beatPath) {
		log.Warn("request rejected", "method", r.Method, "path", probe.CleanText(r.URL.Path, probe.MaxDetail), "remote", r.RemoteAddr, "reason", why)
	}
}

// setSecurityHeaders sets the headers that every response has.
func setSecurityHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}
