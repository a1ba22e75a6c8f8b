//go:build linux

package gateways

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// scene is a gateway in front of three backends, with a separate Sonde. All listen at the scene's own loopback addresses: no
// client's port can conflict with theirs.
type scene struct {
	t        *testing.T
	kind     kind
	dir      string
	network  netip.Addr // 127.x.y.0
	port     string     // of backends, for requests
	health   string     // of backends, for probes
	listen   string     // address and port of Sonde's output
	edge     net.Addr   // where the gateway accepts requests
	program  string     // the program with the engine
	backends []*backend
	wire     *wire

	gateway *gatewaytest.Process // the gateway with an embedded engine; nil if there is a separate Sonde

	sonde  *exec.Cmd // nil while it is not running
	log    testsync.Buffer
	client api.Client

	view    *view       // backends that the gateway reports to use; nil if it accepts requests
	load    *load       // nil if it accepts no requests
	settled func() bool // reports whether every part of the gateway has the latest state; nil if it always has

	verdictsMu sync.Mutex // guards verdicts
	verdicts   []verdict  // published by Sonde, in order
}

// verdict is the verdict of a backend's readiness.
type verdict struct {
	backend string
	is      probe.Verdict
	since   time.Time
}

// Backends, by the last number of their addresses on the pages.
var backendNames = map[string]string{"web-1": "7", "web-2": "8", "web-3": "9"}

// front returns the Unix socket at which most gateways accept requests.
func (s *scene) front() string { return filepath.Join(s.dir, "edge.sock") }

// at returns an address of the scene.
func (s *scene) at(host string) string {
	return strings.TrimSuffix(s.network.String(), "0") + host
}

// play starts a scene, and plays it once the gateway sends requests to all backends. Edit changes Sonde's configuration, and may be
// nil.
func play(t *testing.T, g kind, program string, edit func(hcl string) string, act func(*scene)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to see what gateways send to backends")
	}
	s := &scene{t: t, kind: g, dir: testsync.SocketDir(t), program: program}
	s.edge = &net.UnixAddr{Name: s.front(), Net: "unix"}
	s.network = netip.AddrFrom4([4]byte{127, byte(1 + rand.N(250)), byte(rand.N(250)), 0})
	s.port, s.health = gatewaytest.FreePort(t), gatewaytest.FreePort(t)
	s.listen = net.JoinHostPort(s.at("10"), gatewaytest.FreePort(s.t))
	n, _ := strconv.ParseUint(s.port, 10, 16)
	s.wire = watchWire(t, s.network, uint16(n))
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		host := s.at(backendNames[name])
		b := &backend{t: t, name: name, requests: net.JoinHostPort(host, s.port), health: net.JoinHostPort(host, s.health)}
		s.backends = append(s.backends, b)
		t.Cleanup(b.kill)
	}
	s.begin(edit)
	if s.view == nil {
		s.load = newLoad(s.edge, tier.Pick(shortRate, shortRate, *rate))
		defer s.load.end()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of Sonde:\n%s", s.log.String())
			if s.gateway != nil {
				t.Logf("the log of the gateway:\n%s", s.gateway.Output())
			}
		}
	})
	for _, b := range s.backends {
		s.verdict(0, b, probe.Passing)
	}
	for _, b := range s.backends {
		s.effect(b, true, time.Time{})
	}
	s.upToDate()
	if s.load != nil {
		s.load.take() // the gateway may have started before the first responses
	}
	act(s)
}

// begin starts the backends, Sonde and the gateway.
func (s *scene) begin(edit func(hcl string) string) {
	s.t.Helper()
	text := ""
	if s.kind.inside == nil {
		listen := net.JoinHostPort(s.at("11"), gatewaytest.FreePort(s.t))
		s.client = api.Client{Base: "http://" + listen}
		if text = s.configuration(s.kind); edit != nil {
			text = edit(text)
		}
		gatewaytest.WriteFile(s.t, s.dir, "config.hcl", fmt.Sprintf("engine {\n  listen = %q\n}\n\n%s", listen, text))
	}
	if !strings.Contains(text, "process {") {
		for _, b := range s.backends {
			b.start()
		}
	}
	if s.kind.inside == nil {
		s.startSonde()
		s.t.Cleanup(s.killSonde)
		s.followVerdicts()
	}
	s.kind.start(s)
	if s.kind.inside != nil {
		s.followLog()
	}
}

// configuration returns Sonde's configuration from the pages: the targets and the group of one page, and the gateway of another.
func (s *scene) configuration(g kind) string {
	targets, _, ok := strings.Cut(gatewaytest.CodeBlock(s.t, filepath.Join(pages, g.targets), "hcl", `path = "/ready"`), "\ngateway ")
	if !ok {
		s.t.Fatalf("%s has no gateway after its targets", g.targets)
	}
	if g.page != "" {
		block := gatewaytest.CodeBlock(s.t, filepath.Join(pages, g.page), "hcl", g.block)
		at := strings.Index(block, `gateway "`)
		if at < 0 {
			s.t.Fatalf("%s has no gateway with %q", g.page, g.block)
		}
		targets += "\n" + block[at:]
	}
	text := s.adapt(targets)
	if !tier.IsLong() { // verdicts must not change because the machine is busy
		text = strings.ReplaceAll(text, `timeout           = "500ms"`, `timeout           = "2s"`)
	}
	return text
}

// pages is the folder of the pages.
var pages = filepath.Join(root, "docs", "gateways")

// listener matches the addresses at which the pages listen for gateways.
var listener = regexp.MustCompile(`127\.0\.0\.1:97\d\d|127\.0\.0\.1:8500`)

// adapt replaces the addresses and files of the pages by those of the scene.
func (s *scene) adapt(text string) string {
	text = listener.ReplaceAllString(text, s.listen)
	listenHost, listenPort, _ := net.SplitHostPort(s.listen)
	nginx := fmt.Sprintf(`["nginx", "-c", "%[1]s/nginx.conf", "-e", "stderr", "-g", "pid %[1]s/pid;", "-s", "reload"]`, s.dir)
	return strings.NewReplacer(
		"10.0.0.7:80", s.at("7")+":"+s.port, "10.0.0.8:80", s.at("8")+":"+s.port, "10.0.0.9:80", s.at("9")+":"+s.port,
		"10.0.0.", s.at(""), `.port = "80"`, fmt.Sprintf(".port = %q", s.port),
		"{ http = 80 }", fmt.Sprintf("{ http = %s, health = %s }", s.port, s.health),
		"port = \"http\"\n      path", "port = \"health\"\n      path",
		"bind :8080", "bind unix@"+s.front(), "listen 8080", "listen unix:"+s.front(),
		"agent-addr 127.0.0.1 agent-port 9777", "agent-addr "+listenHost+" agent-port "+listenPort,
		"addr 127.0.0.1 port 9778", "addr "+listenHost+" port "+listenPort,
		"http://127.0.0.1:9650", s.client.Base, ":8080 {", "http:// {\n\tbind unix/"+s.front(),
		"/run/sonde-eds", s.dir, "/run/sonde.hosts", filepath.Join(s.dir, "hosts"), "/run/sonde-web", filepath.Join(s.dir, "state"),
		"/run/sonde.nft", filepath.Join(s.dir, "rules"), `"nft", "-f"`, fmt.Sprintf(`"sh", %q, "-f"`, filepath.Join(s.dir, "nft")),
		"/run/haproxy/admin.sock", filepath.Join(s.dir, "admin.sock"),
		"/etc/nginx/upstream.conf", filepath.Join(s.dir, "upstream.conf"), `["nginx", "-s", "reload"]`, nginx,
		"/run/sonde-varnish", filepath.Join(s.dir, "health.sh"), "varnishadm ", "varnishadm -n "+filepath.Join(s.dir, "varnish")+" ",
	).Replace(text)
}

// startSonde starts Sonde.
func (s *scene) startSonde() {
	s.t.Helper()
	s.sonde = exec.Command(s.program, "run", filepath.Join(s.dir, "config.hcl"))
	s.sonde.Dir, s.sonde.Stdout, s.sonde.Stderr = s.dir, &s.log, &s.log
	s.sonde.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.sonde.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// killSonde kills Sonde with SIGKILL, if it is running.
func (s *scene) killSonde() {
	if s.sonde != nil {
		_ = s.sonde.Process.Kill()
		_ = s.sonde.Wait()
		s.sonde = nil
	}
}

// followVerdicts reads Sonde's events until the test ends, from each Sonde in turn.
func (s *scene) followVerdicts() {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			for e, err := range s.client.Events(ctx, api.EventOptions{Snapshot: true}) {
				if err == nil && e.Probe.Kind == probe.Readiness && e.Probe.Decided {
					s.verdictsMu.Lock()
					s.verdicts = append(s.verdicts, verdict{e.Probe.Target, e.Probe.Verdict, e.Probe.Since})
					s.verdictsMu.Unlock()
				}
			}
		}
	})
	s.t.Cleanup(func() { cancel(); ended.Wait() })
}

// followLog reads the verdicts of a gateway with an engine from its log until the test ends.
func (s *scene) followLog() {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for read := 0; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			for line := range strings.Lines(s.gateway.Output()[read:]) {
				if !strings.HasSuffix(line, "\n") {
					break
				}
				read += len(line)
				if v, ok := s.logged(line); ok {
					s.verdictsMu.Lock()
					s.verdicts = append(s.verdicts, v)
					s.verdictsMu.Unlock()
				}
			}
		}
	})
	s.t.Cleanup(func() { cancel(); ended.Wait() })
}

// logged returns the verdict in a line of a log, if there is one. Caddy writes the time in seconds.
func (s *scene) logged(line string) (v verdict, ok bool) {
	var l struct {
		Time    time.Time
		TS      float64
		Target  string
		Verdict *probe.Verdict
	}
	if err := json.Unmarshal([]byte(line), &l); err != nil || l.Verdict == nil {
		return v, false
	}
	if l.TS > 0 {
		l.Time = time.UnixMicro(int64(l.TS * 1e6))
	}
	for _, b := range s.backends {
		if strings.HasSuffix(l.Target, b.requests) {
			return verdict{b.name, *l.Verdict, l.Time}, true
		}
	}
	return v, false
}

// mark returns the number of verdicts so far.
func (s *scene) mark() int {
	s.verdictsMu.Lock()
	defer s.verdictsMu.Unlock()
	return len(s.verdicts)
}

// verdict waits until the latest verdict of a backend after a mark is the given one, and returns since when it is.
func (s *scene) verdict(mark int, b *backend, is probe.Verdict) (since time.Time) {
	s.t.Helper()
	until(s.t, fmt.Sprint(b.name, " ", is), func() bool {
		s.verdictsMu.Lock()
		defer s.verdictsMu.Unlock()
		for _, v := range s.verdicts[mark:] {
			if v.backend == b.name && v.is == is {
				since = v.since
				return true
			}
		}
		return false
	})
	return since
}

// upToDate waits until Sonde has updated the gateway without an error.
func (s *scene) upToDate() {
	s.t.Helper()
	if s.kind.inside != nil {
		return
	}
	client := api.Client{Base: s.client.Base, HTTP: &http.Client{Timeout: patience}}
	until(s.t, "a gateway that is up to date", func() bool {
		all, err := client.Gateways(s.t.Context())
		return err == nil && !slices.ContainsFunc(all.Gateways, func(g api.Gateway) bool { return g.Outputs == 0 || g.Error != "" })
	})
}

// quietRequests is the number of requests without one for a backend after which that backend counts as out of use. Even with the
// smallest share, it would have received some of them.
const quietRequests = 60

// effect waits until the gateway uses a backend, or no longer uses it, and returns since when: the time of the first request after
// a time, or of the last one.
func (s *scene) effect(b *backend, used bool, after time.Time) (at time.Time) {
	s.t.Helper()
	if s.view != nil {
		return s.view.await(s.t, b.name, used)
	}
	address := netip.MustParseAddrPort(b.requests).Addr()
	if used {
		until(s.t, "a request to "+b.name, func() bool {
			at = s.wire.firstAfter(address, after)
			return !at.IsZero()
		})
		return at
	}
	for end := time.Now().Add(patience); time.Now().Before(end); {
		before, _ := s.wire.seen(address)
		s.load.pass(s.t, quietRequests)
		n, last := s.wire.seen(address)
		if n == before && (s.settled == nil || s.settled()) {
			return last
		}
	}
	s.t.Fatalf("%s still gets requests", b.name)
	return at
}

// whole checks that no request has failed.
func (s *scene) whole(during string) {
	s.t.Helper()
	if s.load == nil {
		return
	}
	if n, how := s.load.take(); n > 0 {
		s.t.Errorf("%s: %d requests failed: %s", during, n, how)
	}
}
