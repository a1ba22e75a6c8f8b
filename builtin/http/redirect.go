package httpprobe

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
)

// maxRedirects is the kubelet's (maxRedirects in k8s.io/kubernetes/pkg/probe/http).
const maxRedirects = 10

// redirect is an http.Client's CheckRedirect: next would follow via.
func (p *plan) redirect(next *http.Request, via []*http.Request) error {
	dial.CanonicalURL(next.URL)
	first, to := via[0], next.URL.Host
	if p.isOwnName(next.URL, portOf(first.URL)) { // the server calls itself what the request has called it
		next.URL.Host, next.Host = first.URL.Host, p.hostHeader
	}
	local := strings.EqualFold(next.URL.Hostname(), first.URL.Hostname())
	downgraded := first.URL.Scheme == "https" && next.URL.Scheme != "https"
	switch {
	case p.redirects == "none", p.redirects != "all" && !local:
		return http.ErrUseLastResponse
	case next.Body != nil && (!local || downgraded): // with 307 and 308
		return http.ErrUseLastResponse
	case len(via) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	case next.URL.Scheme != "http" && next.URL.Scheme != "https", next.URL.Hostname() == "":
		return errors.New("the redirect is not to an http or https URL with a host")
	}
	if server(next.URL) != server(first.URL) {
		next.Header.Del("Referer") // our path may hold a secret
		for _, name := range p.private {
			next.Header.Del(name)
		}
	} else if !slices.ContainsFunc(via, func(r *http.Request) bool { return server(r.URL) != server(first.URL) }) {
		for _, name := range p.private { // net/http takes Authorization and Cookie out after a redirect to the name
			if values, ok := first.Header[name]; ok {
				next.Header[name] = values
			}
		}
	}
	if !local {
		next.Host = "" // a URL without a scheme keeps our own for net/http
	}
	attemptOf(next.Context()).followed(len(via), to)
	return nil
}

// jar has the cookies of one attempt, by server: only the same scheme, host and port gets those that it has set, whatever their
// Domain says.
type jar map[string]*cookiejar.Jar

// SetCookies implements http.CookieJar.
func (j jar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	of := j[server(u)]
	if of == nil {
		of, _ = cookiejar.New(nil) // which has no error
		j[server(u)] = of
	}
	of.SetCookies(u, cookies)
}

// Cookies implements http.CookieJar.
func (j jar) Cookies(u *url.URL) []*http.Cookie {
	if of := j[server(u)]; of != nil {
		return of.Cookies(u)
	}
	return nil
}

// server identifies the server of a URL with http or https.
func server(u *url.URL) string {
	return u.Scheme + "://" + strings.ToLower(net.JoinHostPort(u.Hostname(), portOf(u)))
}

// isOwnName reports whether a URL names the server that is probed by the header Host of the request, with the scheme of the
// probe: that name may lead elsewhere. Another scheme is another server, whose port and certificate are not known.
// A server names the port of the header, or the one that it listens to.
func (p *plan) isOwnName(u *url.URL, port string) bool {
	if p.kubelet || p.hostHeader == "" || u.Scheme != p.ref.Scheme {
		return false
	}
	own := &url.URL{Scheme: u.Scheme, Host: p.hostHeader}
	return strings.EqualFold(u.Hostname(), own.Hostname()) && (portOf(u) == portOf(own) || portOf(u) == port)
}

// portOf returns the port of a URL with http or https.
func portOf(u *url.URL) string {
	standard := "80"
	if u.Scheme == "https" {
		standard = "443"
	}
	return cmp.Or(u.Port(), standard)
}
