// Package listener is the shared code of this program's listeners: which addresses other machines
// can reach, which requests are permitted, and how an HTTP server limits its clients.
//
//	access.go       Loopback, Token, CrossSite
//	socket.go       Listen, also on Unix sockets
//	http.go         HTTP: serves until a context is done
//	connections.go  the limit on open connections
//	pace.go         Paced: disconnects clients that do not read
//	waiters.go      Waiters: the limit on requests that wait for a change
package listener

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
)

// Loopback reports whether only this machine can connect to a listener at an address, and whether the address is valid: a host,
// which may be empty, and a port number, which may be 0.
func Loopback(address string) (loopback, valid bool) {
	host, port, err := net.SplitHostPort(address)
	_, portErr := strconv.ParseUint(port, 10, 16)
	return dial.IsLoopback(host), err == nil && portErr == nil
}

// AddressProblem returns why Loopback considers an address invalid, as words that follow the address's name.
func AddressProblem(address string) string {
	if _, port, err := net.SplitHostPort(address); err == nil && port != "" && strings.Trim(port, "0123456789") == "" {
		return fmt.Sprintf("has the port %.20s, which is above 65535", port)
	}
	return "must be an address and a port number"
}

// TokenHint says how to create a Token.
const TokenHint = "make one: openssl rand -hex 16"

// minToken is the minimum length of a Token in bytes.
const minToken = 16

// Token is the secret that clients must send. If it is empty, every client is permitted.
type Token string

// Problem returns why a token is invalid, as words that follow its name, or "".
func (t Token) Problem() string {
	switch {
	case t != "" && len(t) < minToken:
		return fmt.Sprintf("has %d bytes, but needs at least %d", len(t), minToken)
	case strings.ContainsFunc(string(t), func(r rune) bool { return r <= ' ' || r > '~' }):
		if strings.HasSuffix(string(t), "\n") {
			return "ends with a line feed: write trimspace(file(…))"
		}
		return "must be printable ASCII without spaces"
	}
	return ""
}

// Matches reports whether a client that sends text is permitted. It compares in constant time.
func (t Token) Matches(text string) bool {
	sent, want := sha256.Sum256([]byte(text)), sha256.Sum256([]byte(t))
	return t == "" || subtle.ConstantTimeCompare(sent[:], want[:]) == 1
}

// Bearer returns the bearer token of a request, or "".
func Bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// FromBrowser reports whether a browser sent r, possibly for a page of any site.
func FromBrowser(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// CrossSite reports whether a browser sent r for a page of another site. A link to this site that a user follows is not cross-site.
func CrossSite(r *http.Request) bool {
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
