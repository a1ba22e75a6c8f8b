package httpprobe

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
)

// script is the bytes of a request, but for the host that it asks for.
type script struct {
	before []byte
	after  []byte
	host   bool // the host that is connected to comes between
}

// maxScript bounds the requests that are sent in steps, in bytes.
const maxScript = 8 << 10

// script renders the request as net/http does with a connection of its own, or
// returns nil where that takes more than bytes, or where it should not be made
// twice: a method that may change something is left to Probe from the beginning.
func (p *plan) script() *script {
	safe := p.method == http.MethodGet || p.method == http.MethodHead || p.method == http.MethodOptions
	if !safe || p.body != "" || p.ref.Scheme != "http" {
		return nil
	}
	for _, name := range []string{"Connection", "Upgrade", "Expect"} {
		if _, given := p.header[name]; given {
			return nil
		}
	}
	return p.render()
}

func (p *plan) render() *script {
	const closes = "Connection: close\r\n\r\n"
	u := p.ref
	u.Host = "host"
	r := &http.Request{Method: p.method, URL: &u, Host: p.asked, Header: p.header.Clone()}
	if password, _ := u.User.Password(); u.User != nil && r.Header.Get("Authorization") == "" {
		r.SetBasicAuth(u.User.Username(), password)
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil || b.Len() > maxScript {
		return nil
	}
	text := append(bytes.TrimSuffix(b.Bytes(), []byte("\r\n")), closes...)
	if p.asked != "" {
		return &script{before: text}
	}
	before, after, _ := bytes.Cut(text, []byte("\r\nHost: host\r\n"))
	return &script{append(before, "\r\nHost: "...), append([]byte("\r\n"), after...), true}
}

// appendTo appends the request for a host and a port to b.
func (s *script) appendTo(b []byte, host string, port uint16) []byte {
	b = append(b, s.before...)
	if s.host && strings.Contains(host, ":") {
		b = append(append(append(b, '['), host...), ']')
	} else if s.host {
		b = append(b, host...)
	}
	if s.host {
		b = strconv.AppendUint(append(b, ':'), uint64(port), 10)
	}
	return append(b, s.after...)
}
