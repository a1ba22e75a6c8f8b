package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// CheckListen says why a Server must not listen on address, or nil. Guarded says
// that callers need a token or a client certificate: without either only
// loopback addresses will do, since what is probed, and what it answers, is not
// for every neighbour to read.
func CheckListen(address string, guarded bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen is %q, it must be an address and a port number such as %q", address, DefaultListen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("listen is %q, its port must be a number from 0 to 65535", address)
	}
	if !guarded && !loopback(host) {
		return fmt.Errorf("listen is %q, which is open to other machines, and nothing asks callers who they are: "+
			"give a token or client certificates, or listen on %s", address, DefaultListen)
	}
	return nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// guarded reports whether callers have to say who they are.
func (c Config) guarded() bool { return c.Token != "" || c.TLS.ClientCAFile != "" }

func checkToken(token string) error {
	if token == "" {
		return nil
	}
	if len(token) < MinToken {
		return fmt.Errorf("token is %d bytes long, it must be %d or more", len(token), MinToken)
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return fmt.Errorf("token must be printable ASCII without spaces")
		}
	}
	return nil
}

// guard answers only those requests that may be answered.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "only GET and HEAD are served here")
		case !s.config.guarded() && !loopback(hostname(r.Host)):
			refuse(w, http.StatusForbidden, "the host is %q, without a token it must be localhost or a loopback address", r.Host)
		case foreign(r):
			refuse(w, http.StatusForbidden, "pages of other sites are not answered")
		case !open(r.URL.Path) && !s.knows(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="sonde"`)
			refuse(w, http.StatusUnauthorized, "this needs the header Authorization: Bearer <token>")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// secure sets the headers that every answer has.
func secure(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "+
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}

// hostname returns the host of a Host header without its port.
func hostname(host string) string {
	u := url.URL{Host: host}
	return u.Hostname()
}

// foreign reports whether a browser makes r for another site's page. A link
// that somebody follows to here is not foreign.
func foreign(r *http.Request) bool {
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

// knows reports whether the caller has shown the token, if there is one. It
// takes as long for a token that is nearly right as for any other.
func (s *Server) knows(r *http.Request) bool {
	if s.config.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	shown, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(s.config.Token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(shown[:], want[:]) == 1
}
