package times

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// removal is the observed behaviour of a running container, or of a process of sonde, that is removed. Its moments are "running",
// "terminating", when it was asked to exit but has not, and "removed", when it has exited. The facts are "started", "ready" and, by
// kind, whether attempts were made.
type removal map[string]map[string]bool

// removalCase is a container that is removed.
type removalCase struct {
	name     string
	probes   []probe.Kind
	up       bool // it is healthy before the removal
	fails    bool // it is unhealthy once it is asked to exit
	shutdown bool // sonde is stopped, which does not remove the target
	differs  map[string]string
}

// removals are the cases, with the facts in which sonde differs: the reason by moment and fact, with the number in docs/kubelet.md.
var removals = []removalCase{
	{name: "ready, and fails then", probes: []probe.Kind{probe.Readiness, probe.Liveness}, up: true, fails: true, differs: map[string]string{
		"terminating readiness": "K158: a target that was removed has no probes",
		"removed started":       "K13: there is no such target",
		"removed ready":         "K13: there is no such target",
	}},
	{name: "ready", probes: []probe.Kind{probe.Readiness, probe.Liveness}, up: true, differs: map[string]string{
		"terminating readiness": "K158: a target that was removed has no probes",
		"terminating ready":     "K158: and is not ready",
		"removed started":       "K13: there is no such target",
		"removed ready":         "K13: there is no such target",
	}},
	{name: "not ready", probes: []probe.Kind{probe.Readiness}, differs: map[string]string{
		"terminating readiness": "K158: a target that was removed has no probes",
		"removed started":       "K13: there is no such target",
		"removed ready":         "K13: there is no such target",
	}},
	{name: "not started", probes: []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness}, differs: map[string]string{
		"terminating started":   "K99: what has never started stays so",
		"terminating readiness": "K99: so its readiness is not probed",
		"removed started":       "K13: there is no such target",
		"removed ready":         "K13: there is no such target",
	}},
	{name: "ready, and sonde ends", probes: []probe.Kind{probe.Readiness, probe.Liveness}, up: true, shutdown: true, differs: map[string]string{
		"removed started": "K13: there is no such target",
		"removed ready":   "K13: there is no such target",
	}},
	{name: "ready, fails then, and sonde ends", probes: []probe.Kind{probe.Readiness, probe.Liveness}, up: true, fails: true, shutdown: true, differs: map[string]string{
		"removed started": "K13: there is no such target",
		"removed ready":   "K13: there is no such target",
	}},
}

// TestTargetThatIsRemovedEndsLikeThePodOfTheKubelet removes a target from the
// configuration of a real sonde, a manifest from its directory of pods, and a pod from the
// kubelet's prober manager.
func TestTargetThatIsRemovedEndsLikeThePodOfTheKubelet(t *testing.T) {
	binary := program.Build(t, program.Sonde)
	for _, c := range removals {
		for _, from := range []source{configuration{}, manifests{}} {
			t.Run(fmt.Sprintf("%s/%T", c.name, from), func(t *testing.T) {
				t.Parallel()
				var theirs removal
				inBubble(t, "kubelet", func(t *testing.T) { theirs = c.removePod(t) })
				c.compare(t, theirs, c.removeTarget(t, binary, from))
			})
		}
	}
}

// compare compares the facts. An expected difference that no longer exists is an error.
func (c *removalCase) compare(t *testing.T, kubelet, sonde removal) {
	for moment, facts := range kubelet {
		for fact, theirs := range facts {
			key := moment + " " + fact
			reason, expected := c.differs[key]
			switch ours := sonde[moment][fact]; {
			case ours != theirs && !expected:
				t.Errorf("%s: kubelet %v, sonde %v", key, theirs, ours)
			case ours == theirs && expected:
				t.Errorf("%s: both %v, want a difference: %s", key, theirs, reason)
			}
		}
	}
}

// removePod removes a pod like the kubelet when the pod is deleted (K158).
func (c *removalCase) removePod(t *testing.T) removal {
	probes := map[probe.Kind]v1.Probe{}
	for _, kind := range c.probes {
		probes[kind] = numbers(0, 1, 1, 1, 100)
		if kind == probe.Readiness {
			probes[kind] = numbers(0, 1, 1, 1, 2)
		}
	}
	a := app{up: never}
	switch {
	case c.fails:
		a = app{down: time.Minute}
	case c.up:
		a = app{}
	}
	r := removal{}
	p := running(t, newKubelet, "web", "1", probes, a)
	r["running"] = p.facts()
	p.node.prober.StopLivenessAndStartup(p.spec)
	wait(time.Second) // one more attempt of each is possible (K9, K10)
	p.sync()
	p.forget()
	wait(time.Minute)
	p.sync()
	r["terminating"] = p.facts()
	if p.isKilled {
		t.Error("the kubelet has killed a container that was ending")
	}
	p.node.prober.RemovePod(p.spec)
	wait(time.Second)
	p.forget()
	wait(time.Minute)
	p.sync()
	r["removed"] = p.facts()
	p.node.prober.end()
	return r
}

// forget discards the attempts made so far.
func (p *pod) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.attempts)
}

func (p *pod) facts() map[string]bool {
	f := p.last()
	facts := map[string]bool{"started": f.started, "ready": f.ready}
	for _, kind := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
		facts[kind.String()] = p.count(kind) > 0
	}
	return facts
}

// source is the source of sonde's target.
type source interface {
	target() string // name of the target
	args() []string // arguments of sonde run
	period() time.Duration

	write(g *removedTarget, port string)
	remove(g *removedTarget)
}

// process is the command of the target. It records when it starts and when it is asked to exit, and exits when the test permits it.
const process = `trap 'echo >> asked' TERM
echo >> started
until [ -e exit ]; do sleep 0.05; done
echo >> exited
`

// threshold returns the failure threshold of a probe: only readiness fails.
func threshold(kind probe.Kind) int {
	if kind == probe.Readiness {
		return 2
	}
	return 1_000_000
}

// configuration is an HCL file. A reload removes the target.
type configuration struct{}

func (configuration) target() string        { return "web" }
func (configuration) args() []string        { return nil }
func (configuration) period() time.Duration { return 100 * time.Millisecond }

func (c configuration) write(g *removedTarget, port string) {
	var probes strings.Builder
	for _, kind := range g.probes {
		fmt.Fprintf(&probes, "  probe %q {\n    http {\n      port = %s\n      path = \"/%v\"\n    }\n    period = \"%v\"\n    failure_threshold = %d\n  }\n",
			kind, port, kind, c.period(), threshold(kind))
	}
	g.write("config.hcl", fmt.Sprintf(`target "web" {
  address = "127.0.0.1"
  process { command = ["sh", "process.sh"] }
%s}
`, &probes))
}

func (configuration) remove(g *removedTarget) {
	g.write("config.hcl", "engine { allow_empty = true }")
	g.signal(syscall.SIGHUP)
}

// manifests is a directory of static pods, which sonde reads every second.
type manifests struct{}

func (manifests) target() string        { return "default/web/app" }
func (manifests) args() []string        { return []string{"--pods", "pods"} }
func (manifests) period() time.Duration { return time.Second } // the minimum for a manifest

func (manifests) write(g *removedTarget, port string) {
	var probes strings.Builder
	for _, kind := range g.probes {
		fmt.Fprintf(&probes, "    %vProbe: {httpGet: {host: 127.0.0.1, port: %s, path: /%v}, periodSeconds: 1, failureThreshold: %d}\n",
			kind, port, kind, threshold(kind))
	}
	if err := os.Mkdir(filepath.Join(g.dir, "pods"), 0o700); err != nil {
		g.Fatal(err)
	}
	g.write("pods/web.yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: none
    command: [sh, process.sh]
%s`, &probes))
}

func (manifests) remove(g *removedTarget) {
	if err := os.Remove(filepath.Join(g.dir, "pods", "web.yaml")); err != nil {
		g.Fatal(err)
	}
}

// removedTarget is a target of a real sonde.
type removedTarget struct {
	*testing.T
	*removalCase
	source source
	dir    string
	sonde  *exec.Cmd
	log    testsync.Buffer
	client api.Client
	server *httptest.Server // responds to the probes

	mu       sync.Mutex // guards all below
	healthy  bool
	attempts map[string]int // by kind
}

// removeTarget removes a target from sonde, or stops sonde.
func (c *removalCase) removeTarget(t *testing.T, binary string, from source) removal {
	g := &removedTarget{T: t, removalCase: c, source: from, dir: t.TempDir(), healthy: c.up, attempts: map[string]int{}}
	g.server = httptest.NewServer(g)
	t.Cleanup(g.server.Close)
	g.start(binary)
	r := removal{}
	testsync.Until(t, "the first attempts", g.isProbed)
	r["running"] = g.facts()
	if c.shutdown {
		g.signal(syscall.SIGTERM)
	} else {
		from.remove(g)
	}
	testsync.Until(t, "the process to be asked to exit", func() bool { return g.lines("asked") > 0 })
	g.mu.Lock()
	g.healthy = c.up && !c.fails
	g.mu.Unlock()
	g.observe()
	r["terminating"] = g.facts()
	g.write("exit", "")
	testsync.Until(t, "the process to exit", func() bool { return g.lines("exited") > 0 })
	if c.shutdown {
		_ = g.sonde.Wait()
	} else {
		testsync.Until(t, "the target to be removed", func() bool { return g.facts()["gone"] })
	}
	g.observe()
	r["removed"] = g.facts()
	if started, asked := g.lines("started"), g.lines("asked"); started != 1 || asked != 1 {
		t.Errorf("the process was started %d times, and asked to exit %d times; log:\n%s", started, asked, &g.log)
	}
	return r
}

// ServeHTTP responds to an attempt. Its path is the kind of the probe.
func (g *removedTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.attempts[strings.TrimPrefix(r.URL.Path, "/")]++
	if !g.healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// start starts sonde with the target.
func (g *removedTarget) start(binary string) {
	address, _ := url.Parse(g.server.URL)
	g.source.write(g, address.Port())
	g.write("process.sh", process)
	g.sonde = exec.Command(binary, append([]string{"run", "--listen", "127.0.0.1:0", "--address-file", "address"}, g.source.args()...)...)
	g.sonde.Dir, g.sonde.Stdout, g.sonde.Stderr = g.dir, &g.log, &g.log
	if err := g.sonde.Start(); err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() {
		_ = g.sonde.Process.Kill()
		_ = g.sonde.Wait()
	})
	testsync.Until(g, "sonde to listen", func() bool {
		b, _ := os.ReadFile(filepath.Join(g.dir, "address"))
		g.client.Base = "http://" + strings.TrimSpace(string(b))
		return len(b) > 0
	})
}

func (g *removedTarget) signal(s syscall.Signal) {
	if err := g.sonde.Process.Signal(s); err != nil {
		g.Fatal(err)
	}
}

// observe discards the attempts so far, and waits for others. An attempt may be in progress at the beginning, so observe waits
// first.
func (g *removedTarget) observe() {
	time.Sleep(200*time.Millisecond + g.source.period())
	g.mu.Lock()
	clear(g.attempts)
	g.mu.Unlock()
	time.Sleep(800*time.Millisecond + 2*g.source.period())
}

// isProbed reports whether the target has reached its final state before its removal.
func (g *removedTarget) isProbed() bool {
	first := g.probes[0].String() // the startup probe, if there is one, gates the others
	g.mu.Lock()
	attempts := g.attempts[first]
	g.mu.Unlock()
	return attempts > 3 && g.facts()["ready"] == g.up && (!g.up || g.facts()["liveness"])
}

// facts returns the facts from the API, and which attempts were made. While sonde is not running, the target does not exist either.
func (g *removedTarget) facts() map[string]bool {
	facts := map[string]bool{}
	target, err := g.client.Target(context.Background(), g.source.target())
	if err == nil {
		facts["started"], facts["ready"] = target.Started, target.Ready
	}
	facts["gone"] = err != nil
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(g.attempts)) {
		facts[kind] = true
	}
	return facts
}

func (g *removedTarget) write(name, text string) {
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
		g.Fatal(err)
	}
}

// lines returns how many lines a file has.
func (g *removedTarget) lines(name string) int {
	b, _ := os.ReadFile(filepath.Join(g.dir, name))
	return strings.Count(string(b), "\n")
}
