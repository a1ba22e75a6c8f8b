package httpprobe

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// maxRedirects is the kubelet's (maxRedirects in k8s.io/kubernetes/pkg/probe/http).
const maxRedirects = 10

// redirect is an http.Client's CheckRedirect: next would follow via.
func (p *plan) redirect(next *http.Request, via []*http.Request) error {
	first := via[0]
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
	if !local || next.URL.Scheme != first.URL.Scheme || portOf(next.URL) != portOf(first.URL) { // another server
		next.Header.Del("Referer") // our path may hold a secret
		for _, name := range p.private {
			next.Header.Del(name)
		}
	}
	if !local {
		next.Host = "" // a URL without a scheme keeps our own for net/http
	}
	attemptOf(next.Context()).followed(len(via), next.URL.Host)
	return nil
}

// portOf returns the port of a URL with http or https.
func portOf(u *url.URL) string {
	standard := "80"
	if u.Scheme == "https" {
		standard = "443"
	}
	return cmp.Or(u.Port(), standard)
}
