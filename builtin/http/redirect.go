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
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
)

// maxRedirects is the kubelet's limit (maxRedirects in k8s.io/kubernetes/pkg/probe/http).
const maxRedirects = 10

// redirect implements http.Client.CheckRedirect: next is the request that follows those in via.
func (p *plan) redirect(next *http.Request, via []*http.Request) error {
	dial.CanonicalURL(next.URL)
	first, to := via[0], next.URL.Host
	if p.isOwnName(next.URL, first) { // the server uses the name that the request gave it
		next.URL.Host, next.Host = first.URL.Host, first.Host
	}
	local := p.isSameHost(next.URL, first.URL)
	if local { // another spelling, such as one with a final dot, might resolve differently
		next.URL.Host = hostPort(first.URL.Hostname(), next.URL.Port())
	}
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
	case !isPort(portOf(next.URL)):
		return fmt.Errorf("the redirect is to port %.20s; a port is from 1 to 65535", next.URL.Port())
	}
	if server(next.URL) != server(first.URL) {
		next.Header.Del("Referer") // our path may contain a secret
		for _, name := range p.private {
			next.Header.Del(name)
		}
	} else if !slices.ContainsFunc(via, func(r *http.Request) bool { return server(r.URL) != server(first.URL) }) {
		p.restore(next, via)
	}
	if !local {
		next.Host = "" // a URL without a scheme keeps our own for net/http
	}
	attemptOf(next.Context()).followed(len(via), to)
	return nil
}

// isSameHost reports whether two URLs have the same host, regardless of its spelling.
func (p *plan) isSameHost(a, b *url.URL) bool {
	if p.kubelet {
		return strings.EqualFold(a.Hostname(), b.Hostname())
	}
	return dial.HostID(a.Hostname()) == dial.HostID(b.Hostname())
}

// hostPort returns the Host of a URL; port may be "".
func hostPort(host, port string) string {
	if port == "" {
		return strings.TrimSuffix(net.JoinHostPort(host, ""), ":")
	}
	return net.JoinHostPort(host, port)
}

// jar has the cookies of one attempt, by server: cookies are sent back only to the scheme, host and port that set them, whatever
// their Domain says.
type jar map[string]*cookiejar.Jar

// SetCookies implements http.CookieJar.
func (j jar) SetCookies(u *url.URL, cookies []*http.Cookie) {
	of := j[server(u)]
	if of == nil {
		of, _ = cookiejar.New(nil) // never returns an error
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

// server identifies the server of an http or https URL.
func server(u *url.URL) string {
	return u.Scheme + "://" + net.JoinHostPort(dial.HostID(u.Hostname()), portOf(u))
}

// restore puts back the headers, such as Authorization, that net/http removes from a request after a redirect to the server's own
// name. Headers that net/http removes from any redirected request stay removed: those of a body that is not sent again, and cookies
// that the server has replaced.
func (p *plan) restore(next *http.Request, via []*http.Request) {
	for _, name := range p.private {
		values, was := via[0].Header[name]
		if _, is := next.Header[name]; !was || is || strings.HasPrefix(name, "Content-") {
			continue
		}
		if name != "Cookie" {
			next.Header[name] = values
			continue
		}
		for _, c := range via[0].Cookies() {
			isReplaced := func(r *http.Request) bool {
				return slices.ContainsFunc(r.Response.Cookies(), func(set *http.Cookie) bool { return set.Name == c.Name })
			}
			if !slices.ContainsFunc(append(via[1:len(via):len(via)], next), isReplaced) {
				next.AddCookie(c)
			}
		}
	}
}

// isOwnName reports whether a URL names the server of the first request by the Host header of that request, with the same scheme:
// that name may resolve to another address. A URL with another scheme is for another server, whose port and certificate are
// unknown. The URL's port may be that of the Host header, or the one that the server listens on.
func (p *plan) isOwnName(u *url.URL, first *http.Request) bool {
	if p.kubelet || first.Host == "" || u.Scheme != first.URL.Scheme {
		return false
	}
	own := &url.URL{Scheme: u.Scheme, Host: first.Host}
	return dial.HostID(u.Hostname()) == dial.HostID(own.Hostname()) && (portOf(u) == portOf(own) || portOf(u) == portOf(first.URL))
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// portOf returns the port of an http or https URL.
func portOf(u *url.URL) string {
	standard := "80"
	if u.Scheme == "https" {
		standard = "443"
	}
	return cmp.Or(u.Port(), standard)
}
