package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
)

// CheckListen returns why a Server must not listen on address, or nil. Guarded is
// whether clients need a token or a certificate: without either only loopback
// addresses are allowed, because other machines must not read what is probed.
func CheckListen(address string, guarded bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen is %q: write an address and a port number, such as %q", address, DefaultListen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("listen is %q: the port must be a number from 0 to 65535", address)
	}
	if !guarded && !dial.IsLoopback(host) {
		return fmt.Errorf("listen is %q, which other machines can reach without authentication: "+
			"set a token or client certificates, or listen on %s", address, DefaultListen)
	}
	return nil
}

// guarded reports whether clients need a token or a certificate.
func (c Config) guarded() bool { return c.Token != "" || c.TLS.ClientCAFile != "" }

// guard passes allowed requests to next, and rejects the others. A POST, which may change the
// engine, needs the token or comes from the engine's own user: a certificate is not enough, since
// browsers send it for any page.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		switch {
		case !slices.Contains(strings.Split(methods(r.URL.Path), ", "), r.Method):
			w.Header().Set("Allow", methods(r.URL.Path))
			respondError(w, http.StatusMethodNotAllowed, "method not allowed: use %s", strings.ReplaceAll(methods(r.URL.Path), ", ", " or "))
		case isOwner(r.Context()):
			next.ServeHTTP(w, r)
		case !s.config.guarded() && !dial.IsLoopback((&url.URL{Host: r.Host}).Hostname()):
			respondError(w, http.StatusForbidden, "host is %q: without a token it must be localhost or a loopback address", r.Host)
		case crossSite(r):
			respondError(w, http.StatusForbidden, "cross-site request rejected")
		case r.Method == http.MethodPost && s.config.Token == "":
			respondError(w, http.StatusForbidden, "only the engine's user on this machine may do this (sonde reload): the engine has no token_file")
		case !public(r.URL.Path) && !s.hasToken(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="sonde"`)
			respondError(w, http.StatusUnauthorized, "missing or wrong token: send the header Authorization: Bearer <token>")
		default:
			next.ServeHTTP(w, r)
		}
	})
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

// crossSite reports whether a browser sends r for another site's page. A link to this
// site that a user follows is not cross-site.
func crossSite(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		return err != nil || !strings.EqualFold(u.Host, r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return false
	}
	return r.Header.Get("Sec-Fetch-Dest") != "document"
}

// hasToken reports whether r has the configured token, if there is one. It compares
// in constant time.
func (s *Server) hasToken(r *http.Request) bool {
	if s.config.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	shown, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(s.config.Token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(shown[:], want[:]) == 1
}
