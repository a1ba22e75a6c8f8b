package httpprobe

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// maxRedirects is the kubelet's (maxRedirects in k8s.io/kubernetes/pkg/probe/http).
const maxRedirects = 10

// redirect is an http.Client's CheckRedirect: next would follow via.
func (p *plan) redirect(next *http.Request, via []*http.Request) error {
	local := strings.EqualFold(next.URL.Hostname(), via[0].URL.Hostname())
	switch {
	case p.redirects == "none", p.redirects != "all" && !local:
		return http.ErrUseLastResponse
	case len(via) >= maxRedirects:
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	case next.URL.Scheme != "http" && next.URL.Scheme != "https", next.URL.Hostname() == "":
		return errors.New("the redirect is not to an http or https URL with a host")
	}
	if !local {
		next.Header.Del("Referer") // our path may hold a secret
		for _, name := range p.private {
			next.Header.Del(name)
		}
	}
	attemptOf(next.Context()).followed(len(via))
	return nil
}
