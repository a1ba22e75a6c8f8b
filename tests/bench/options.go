//go:build linux

package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	tcpprobe "github.com/sonde-probe/sonde/builtin/tcp"
	"github.com/sonde-probe/sonde/probe"
)

// option is a variant of a probe whose cost row options measures.
type option struct {
	name, what string
	slower     int  // factor by which attempts are rarer, so that both processors have time left
	secure     bool // the target speaks TLS
	handler    func(ca string) (probe.Handler, error)
}

// probeOptions returns the variants of http and tcp that differ in cost, the plain ones first.
func probeOptions() []option {
	overHTTP := func(c httpprobe.Config) func(string) (probe.Handler, error) {
		return func(ca string) (probe.Handler, error) {
			if c.Port = "p"; c.Scheme == "https" {
				c.TLS = &httpprobe.TLS{CAFile: ca, ServerName: "example.com"}
			}
			return httpprobe.New(c)
		}
	}
	overTCP := func(c tcpprobe.Config) func(string) (probe.Handler, error) {
		return func(ca string) (probe.Handler, error) {
			if c.Port = "p"; c.TLS != nil {
				c.TLS = &tcpprobe.TLS{CAFile: ca, ServerName: "example.com"}
			}
			return tcpprobe.New(c)
		}
	}
	get := "GET / HTTP/1.1\r\n\r\n"
	return []option{
		{"http", "http", 1, false, overHTTP(httpprobe.Config{})},
		{"http-kept", "http, reuse_connection", 1, false, overHTTP(httpprobe.Config{ReuseConnection: true})},
		{"http-headers", "http, headers, basic_auth, body_contains", 1, false, overHTTP(httpprobe.Config{
			Headers: map[string][]string{"X-A": {"b"}}, BasicAuth: &httpprobe.Basic{Username: "a", Password: "b"}, BodyContains: "ok",
		})},
		{"http-method", "http, another method than GET, HEAD and OPTIONS", 10, false, overHTTP(httpprobe.Config{Method: "POST", Body: "x"})},
		{"http-asserts", "http, header_equals", 10, false, overHTTP(httpprobe.Config{HeaderEquals: map[string]string{"Content-Length": "2"}})},
		{"http-name", "http, the name of a host", 10, false, overHTTP(httpprobe.Config{Host: "localhost"})},
		{"https", "http, https", 20, true, overHTTP(httpprobe.Config{Scheme: "https", HTTPVersion: "1.1"})},
		{"https-kept", "http, https, reuse_connection", 20, true, overHTTP(httpprobe.Config{Scheme: "https", HTTPVersion: "1.1", ReuseConnection: true})},
		{"tcp", "tcp", 1, false, overTCP(tcpprobe.Config{})},
		{"half-open", "tcp, half_open", 1, false, overTCP(tcpprobe.Config{HalfOpen: true})},
		{"tcp-expect", "tcp, send and expect", 1, false, overTCP(tcpprobe.Config{Send: get, Expect: "200 OK"})},
		{"tcp-kept", "tcp, send and expect, reuse_connection", 1, false, overTCP(tcpprobe.Config{Send: get, Expect: "200 OK", ReuseConnection: true})},
		{"tcp-keepalive", "tcp, keepalive", 1, false, overTCP(tcpprobe.Config{KeepAlive: &tcpprobe.KeepAlive{}})},
		{"tcp-name", "tcp, the name of a host", 10, false, overTCP(tcpprobe.Config{Host: "localhost"})},
		{"tcp-tls", "tcp, tls", 20, true, overTCP(tcpprobe.Config{TLS: &tcpprobe.TLS{}})},
	}
}

// handlerOf returns a handler by name, for the target's port p. Ca is the file with the authority of a TLS target.
func handlerOf(name, ca string) (probe.Handler, error) {
	for _, o := range probeOptions() {
		if o.name == name {
			return o.handler(ca)
		}
	}
	return nil, fmt.Errorf("there is no handler %q", name)
}

// optionCosts measures the CPU time of an attempt of each option.
func (b *bench) optionCosts(ctx context.Context) (lines []line, err error) {
	ca := filepath.Join(b.dir, "ca.pem")
	var secure place
	target, err := b.startRole(ctx, &secure, "secure", ca)
	if err != nil {
		return nil, err
	}
	defer target.end()
	for _, o := range probeOptions() {
		flags, b := []string{"-ca", ca}, *b
		b.rate = max(1, b.rate/o.slower)
		if o.secure {
			flags = append(flags, "-port", fmt.Sprint(secure.Port))
		}
		l := line{What: "CPU of an attempt: " + o.what, Unit: "µs", Note: fmt.Sprintf("at %d attempts/s", b.rate)}
		for range b.rounds {
			p, err := b.price(ctx, b.counted(o.name, flags...))
			if err != nil {
				return lines, err
			}
			l.Rounds = append(l.Rounds, p.cpu.Seconds()*1e6)
		}
		l.Measured = median(l.Rounds)
		lines = append(lines, l)
	}
	return lines, nil
}

// runSecure is role secure: a TLS target. It writes its authority to the file named by its argument.
func runSecure(_ context.Context, args []string) error {
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }))
	s.Listener.Close()
	s.Listener = listener
	s.StartTLS()
	defer s.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(args[0], ca, 0o600); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(place{listener.Addr().(*net.TCPAddr).Port}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
