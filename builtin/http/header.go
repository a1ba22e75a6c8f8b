package httpprobe

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sonde-probe/sonde/internal/dial"
	"github.com/sonde-probe/sonde/internal/httpauth"
	"github.com/sonde-probe/sonde/internal/shortage"
	"github.com/sonde-probe/sonde/probe"
)

// Default values of the User-Agent header: kubeletUserAgent with the kubelet's compatibility, since servers and gateways recognize
// it (K87 in docs/kubelet.md).
const (
	userAgent        = "sonde-probe"
	kubeletUserAgent = "kube-probe/1.36"
)

// setHeaders validates headers and adds the kubelet's defaults (newProbeRequest in k8s.io/kubernetes/pkg/probe/http).
func (p *plan) setHeaders(given map[string][]string) error {
	p.header = http.Header{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if err := checkHeader(name, given[name]); err != nil {
			return err
		}
		key := http.CanonicalHeaderKey(name)
		p.header[key] = append(p.header[key], given[name]...)
	}
	at := url.URL{Host: p.header.Get("Host")}
	dial.CanonicalURL(&at)
	p.hostHeader = at.Host
	if strings.Trim(p.hostHeader, hostBytes) != "" {
		return probe.FieldErrorf("headers", "has an invalid Host: %q", p.hostHeader)
	}
	delete(p.header, "Host")
	for name := range p.header {
		if name != "User-Agent" && name != "Accept" {
			p.private = append(p.private, name)
		}
	}
	agent := userAgent
	if p.kubelet {
		agent = kubeletUserAgent
	}
	setDefault(p.header, "User-Agent", agent)
	setDefault(p.header, "Accept", "*/*")
	if p.header.Get("Accept") == "" {
		delete(p.header, "Accept")
	}
	return nil
}

// reasonAuth means that this machine cannot read the credentials of a request.
const reasonAuth probe.Reason = "http.auth"

// setAuth validates the credentials, and adds them to the headers unless they are read for each attempt. The headers must already
// be set.
func (p *plan) setAuth(c Config) error {
	auth := httpauth.Auth{Basic: c.BasicAuth, BearerTokenFile: c.BearerTokenFile}
	if err := auth.Check(c.Headers); err != nil || auth == (httpauth.Auth{}) {
		return err
	}
	p.private = append(p.private, "Authorization")
	if c.BearerTokenFile != "" {
		p.auth = auth
		return nil
	}
	value, err := auth.Header()
	p.header["Authorization"] = []string{value}
	return err
}

// lacksAuth returns the result of an attempt whose credentials this machine cannot read.
func lacksAuth(err error) probe.Result {
	why := reasonAuth
	if shortage.Is(err) {
		why = probe.ReasonResources
	}
	return probe.Result{Outcome: probe.Unknown, Reason: why, Detail: probe.CleanText(err.Error(), probe.MaxDetail)}
}

// hasUpgrade reports whether a request has headers that exist only in HTTP/1.1.
func (p *plan) hasUpgrade() bool {
	return p.header.Get("Upgrade") != "" || p.header.Get("Connection") != ""
}

// setDefault sets a header that is not present. A present header stays even if it is empty: an empty User-Agent keeps net/http from
// sending its own.
func setDefault(h http.Header, name string, values ...string) {
	if _, given := h[name]; !given {
		h[name] = values
	}
}

func checkHeader(name string, values []string) error {
	switch http.CanonicalHeaderKey(name) {
	case "Content-Length", "Transfer-Encoding", "Trailer":
		return probe.FieldErrorf("headers", "must not have %s: it follows from the body", name)
	}
	if err := httpauth.CheckHeader("headers", name, values...); err != nil {
		return err
	}
	return nil
}

const hostBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:[]%"
