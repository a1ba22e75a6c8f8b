package httpprobe

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/sonde-probe/sonde/internal/httpauth"
)

// requestTemplate has the bytes of a request, except for its host.
type requestTemplate struct {
	before []byte
	after  []byte
	host   bool // the host that the attempt connects to goes between before and after
}

// maxTemplate is the maximum length of a request that is sent in steps, in bytes.
const maxTemplate = 8 << 10

// template returns the request as net/http writes it, or nil if Probe must send it. Probe may have to repeat an attempt in steps,
// so methods that may change state are left to Probe from the start. With reuse, the request does not ask the server to close the
// connection.
func (p *plan) template(reuse bool) *requestTemplate {
	safe := p.method == http.MethodGet || p.method == http.MethodHead || p.method == http.MethodOptions
	if !safe || p.asserts.needWorker() || p.body != "" || p.ref.Scheme != "http" || p.auth != (httpauth.Auth{}) || p.http2 {
		return nil
	}
	for _, name := range []string{"Connection", "Upgrade", "Expect"} {
		if _, given := p.header[name]; given {
			return nil
		}
	}
	if reuse {
		return p.render("\r\n")
	}
	return p.render("Connection: close\r\n\r\n")
}

// render returns the request with end as the end of its head.
func (p *plan) render(end string) *requestTemplate {
	u := p.ref
	u.Host = "host"
	r := &http.Request{Method: p.method, URL: &u, Host: p.hostHeader, Header: p.header.Clone()}
	if password, _ := u.User.Password(); u.User != nil && r.Header.Get("Authorization") == "" {
		r.SetBasicAuth(u.User.Username(), password)
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil || b.Len() > maxTemplate {
		return nil
	}
	text := append(bytes.TrimSuffix(b.Bytes(), []byte("\r\n")), end...)
	if p.hostHeader != "" {
		return &requestTemplate{before: text}
	}
	before, after, _ := bytes.Cut(text, []byte("\r\nHost: host\r\n"))
	return &requestTemplate{append(before, "\r\nHost: "...), append([]byte("\r\n"), after...), true}
}

// appendTo appends the request for a host and a port to b.
func (t *requestTemplate) appendTo(b []byte, host string, port uint16) []byte {
	b = append(b, t.before...)
	if t.host && strings.Contains(host, ":") {
		b = append(append(append(b, '['), host...), ']')
	} else if t.host {
		b = append(b, host...)
	}
	if t.host {
		b = strconv.AppendUint(append(b, ':'), uint64(port), 10)
	}
	return append(b, t.after...)
}
