//go:build linux

package gateways

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// kind is a gateway of the lab: it follows a separate Sonde, or embeds an engine.
type kind struct {
	name    string // name in the table
	targets string // page of docs/gateways with the targets and the group
	page    string // page with the gateway block; empty for a gateway that follows Sonde by its API, at scene.client.Base
	block   string // text in that block

	limit time.Duration // maximum from verdict to effect: 50 ms, plus its interval if it polls; Prometheus waits 5 s more

	// start starts the gateway, next to a Sonde that has just started. A gateway that accepts requests does so at scene.edge when
	// start returns; other gateways set scene.view.
	start func(s *scene)

	inside       *goProgram     // the program with the embedded engine, which sets scene.gateway; nil if a separate Sonde runs
	withoutPanic func(s *scene) // like start, but each verdict is applied, and probes wait for late responses

	forwards    bool // it sends HTTP requests to backends
	calls       bool // it sends gRPC calls to backends, and reports the calls that it repeats
	failsClosed bool // without Sonde it uses no backend
	slow        bool // an event takes seconds: it is only for the long form
}

const push = 50 * time.Millisecond

// all are all gateways.
var all = []kind{
	{name: "HAProxy, agent checks", forwards: true, targets: "haproxy.md", page: "haproxy.md", block: "agent {", limit: 500*time.Millisecond + push,
		start: haproxyOf("haproxy.md", "agent-check", "")},
	{name: "HAProxy, runtime socket", forwards: true, targets: "haproxy.md", page: "haproxy.md", block: "haproxy {", limit: push,
		start: haproxyOf("haproxy.md", "weight 100\n    server", "")},
	{name: "HAProxy, oracle", forwards: true, targets: "nginx.md", page: "oracle.md", block: "oracle {", limit: 500*time.Millisecond + push, failsClosed: true,
		start: haproxyOf("oracle.md", "send-state", "    server web-3 10.0.0.9:80\n")},
	{name: "Caddy, engine inside", forwards: true, inside: caddy, limit: push, start: caddyInside(true), withoutPanic: caddyInside(false)},
	{name: "Caddy, follows", forwards: true, targets: "nginx.md", limit: push, start: startFollowingCaddy},
	{name: "Caddy, oracle", forwards: true, targets: "nginx.md", page: "oracle.md", block: "oracle {", limit: 500*time.Millisecond + push, start: startCheckingCaddy, failsClosed: true},
	{name: "nginx, render", forwards: true, targets: "nginx.md", page: "nginx.md", block: "render {", limit: time.Second + push, start: startNginx},
	{name: "Varnish, render", forwards: true, targets: "nginx.md", page: "varnish.md", block: "render {", limit: time.Second + push, start: startVarnish},
	{name: "plain Go, engine inside", forwards: true, inside: example, limit: push, start: exampleOf(), withoutPanic: exampleOf("-no-panic", "-timeout", "10s")},
	{name: "grpc-go's xDS client, sonde-xds", targets: "nginx.md", limit: push, start: startCalls, calls: true},
	{name: "grpc-go's health client, sonde-xds", targets: "nginx.md", limit: push, start: startHealthClient},
	{name: "nftables, render", targets: "nginx.md", page: "files.md", block: "numgen", limit: 100*time.Millisecond + push, start: startNftables},
	{name: "HashiCorp's client, consul", targets: "nginx.md", page: "consul.md", block: "consul {", limit: push, start: startConsulClient},
	{name: "Envoy's discovery by REST (a client of ours)", targets: "nginx.md", page: "envoy.md", block: "envoy {", limit: 100*time.Millisecond + push, start: startEDSClient},
	{name: "Traefik's provider (a client of ours)", targets: "nginx.md", page: "traefik.md", block: "traefik {", limit: time.Second + push, start: startTraefikClient},
	{name: "Prometheus, http_sd", targets: "nginx.md", page: "prometheus.md", block: "prometheus {", limit: 10*time.Second + push, start: startPrometheus, slow: true},
}

// engine returns the program with the engine.
func (g kind) engine() *goProgram { return cmp.Or(g.inside, sonde) }

// played returns the gateways of the current form that have a property.
func played(has func(kind) bool) (some []kind) {
	for _, g := range all {
		if has(g) && (tier.IsLong() || !g.slow) {
			some = append(some, g)
		}
	}
	return some
}

// haproxyOf starts HAProxy with a configuration of a page, and more servers.
func haproxyOf(page, containing, further string) func(s *scene) {
	return func(s *scene) { s.startHAProxy(page, containing, further) }
}

func (s *scene) startHAProxy(page, containing, further string) *gatewaytest.Process {
	text := s.adapt(gatewaytest.CodeBlock(s.t, filepath.Join(pages, page), "haproxy", containing) + further)
	file := gatewaytest.WriteFile(s.t, s.dir, "haproxy.cfg", text)
	return gatewaytest.Start(s.t, gatewaytest.Accepts(s.front()), "haproxy", "-db", "-f", file)
}

// startCaddy starts Caddy with the Caddyfile of a page, after replacing more texts.
func (s *scene) startCaddy(path, page, containing string, replace ...string) *gatewaytest.Process {
	text := s.adapt(gatewaytest.CodeBlock(s.t, filepath.Join(pages, page), "caddyfile", containing))
	own := fmt.Sprintf("{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n\tstorage file_system %s\n}\n\n", s.dir)
	file := gatewaytest.WriteFile(s.t, s.dir, "Caddyfile", own+strings.NewReplacer(replace...).Replace(text))
	return gatewaytest.Start(s.t, gatewaytest.Accepts(s.front()), path, "run", "--config", file, "--adapter", "caddyfile")
}

// caddyInside starts Caddy with an embedded engine.
func caddyInside(panics bool) func(s *scene) {
	return func(s *scene) {
		replace := []string{"http /ready", "http /ready {\n\t\t\t\tport " + s.health + "\n\t\t\t}"}
		switch {
		case !panics:
			replace = append(replace, "panic 1%", "", "timeout 500ms", "timeout 10s")
		case !tier.IsLong():
			replace = append(replace, "timeout 500ms", "timeout 2s")
		}
		s.gateway = s.startCaddy(s.program, "caddy.md", "http /ready", replace...)
	}
}

func startFollowingCaddy(s *scene) { s.startCaddy(caddy.build(s.t), "caddy.md", "follow http") }

func startCheckingCaddy(s *scene) {
	third := fmt.Sprintf("%s:%s {", s.at("8"), s.port)
	s.startCaddy(caddy.build(s.t), "oracle.md", "health_upstream", third, fmt.Sprintf("%s:%s %s:%[2]s {", s.at("8"), s.port, s.at("9")))
}

// exampleOf starts examples/gateway with additional arguments.
func exampleOf(further ...string) func(s *scene) {
	return func(s *scene) {
		s.edge = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(net.JoinHostPort(s.at("12"), gatewaytest.FreePort(s.t))))
		words := append([]string{s.program, "-listen", s.edge.String(), "-path", "/ready", "-port", s.health}, further...)
		if !tier.IsLong() && len(further) == 0 {
			words = append(words, "-timeout", "2s")
		}
		for _, b := range s.backends {
			words = append(words, b.requests)
		}
		s.gateway = gatewaytest.Start(s.t, takesConnections(s.edge.String()), words...)
	}
}

// takesConnections returns a function that reports whether a TCP address accepts connections.
func takesConnections(address string) func() bool {
	return func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
}

// startNginx starts nginx when Sonde has written its file.
func startNginx(s *scene) {
	until(s.t, "the file of nginx", func() bool { _, err := os.Stat(filepath.Join(s.dir, "upstream.conf")); return err == nil })
	own := "http { access_log off;"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		own += fmt.Sprintf(" %s_temp_path %s;", kind, filepath.Join(s.dir, kind))
	}
	text := s.adapt(gatewaytest.CodeBlock(s.t, filepath.Join(pages, "nginx.md"), "nginx", "proxy_next_upstream"))
	file := gatewaytest.WriteFile(s.t, s.dir, "nginx.conf", strings.Replace(text, "http {", own, 1))
	p := gatewaytest.Start(s.t, gatewaytest.Accepts(s.front()), "nginx", "-c", file, "-e", "stderr", "-g", "pid "+s.dir+"/pid; daemon off;")
	s.t.Cleanup(p.Stop)
	s.settled = func() bool { return s.nginxProcesses() == nginxWorkers }
}

// nginxWorkers is worker_processes of the page. Workers from before a reload continue until they have noticed it, and have finished
// the requests in progress.
const nginxWorkers = 2

// nginxProcesses returns the number of nginx workers.
func (s *scene) nginxProcesses() int {
	s.t.Helper()
	pid, err := os.ReadFile(filepath.Join(s.dir, "pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	master := strings.TrimSpace(string(pid))
	children, err := os.ReadFile(filepath.Join("/proc", master, "task", master, "children"))
	if err != nil {
		s.t.Fatal(err)
	}
	return len(strings.Fields(string(children)))
}

func startVarnish(s *scene) {
	text := s.adapt(gatewaytest.CodeBlock(s.t, filepath.Join(pages, "varnish.md"), "vcl", "retries"))
	file := gatewaytest.WriteFile(s.t, s.dir, "edge.vcl", text)
	p := gatewaytest.Start(s.t, gatewaytest.Accepts(s.front()), "varnishd", "-j", "none", "-F", "-n", filepath.Join(s.dir, "varnish"), "-a", s.front(), "-f", file)
	s.t.Cleanup(p.Stop)
	s.settled = s.scriptHasRun
}

// scriptHasRun reports whether Sonde's command has succeeded since the latest verdict. Varnish itself avoids a backend for a while
// after a refused connection.
func (s *scene) scriptHasRun() bool {
	s.verdictsMu.Lock()
	latest := s.verdicts[len(s.verdicts)-1].since
	s.verdictsMu.Unlock()
	gateways, err := s.client.Gateways(s.t.Context())
	return err == nil && gateways.Gateways[0].Last.After(latest)
}
