//go:build linux

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/adapter/httpapi"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/shortagetest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// The rule of every probe: a single failure is published.
const (
	period  = 2 * time.Second
	timeout = 900 * time.Millisecond
)

// device is the interface that leads from the prober to the targets.
const device = "sonde0"

// world is a server in a network namespace of its own, and the way to it.
type world struct {
	pid string // of the server
	in  io.WriteCloser
	out *bufio.Scanner
}

// newWorld starts the server. It skips the test where namespaces are not permitted.
func newWorld(t *testing.T) *world {
	if os.Getenv(roleVariable) != "tests" {
		t.Skip("needs root, for network namespaces")
	}
	for _, tool := range []string{"ip", "nft", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs iproute2, nftables and util-linux: ", err)
		}
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), roleVariable+"=server")
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w := &world{pid: strconv.Itoa(c.Process.Pid), in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		in.Close()
		_ = c.Wait()
		_ = exec.Command("ip", "link", "del", device).Run()
	})
	w.await(t, "ready")
	command(t, "ip", "link", "set", "lo", "up")
	command(t, "ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", w.pid)
	command(t, "ip", "addr", "add", "10.78.0.1/30", "dev", device)
	command(t, "ip", "link", "set", device, "up")
	for _, args := range []string{
		"link set lo up", "addr add 10.78.0.2/30 dev eth0", "link set eth0 up", "route add local " + network.String() + " dev lo",
	} {
		command(t, "nsenter", append([]string{"-t", w.pid, "-n", "ip"}, strings.Fields(args)...)...)
	}
	route(t)
	w.tell(t, "names", 0)
	shortagetest.Replace(t, "/etc/resolv.conf", "nameserver "+addressOf(0).String()+"\n")
	return w
}

// route sets the route to the targets, which is lost when the link goes down.
func route(t *testing.T) {
	command(t, "ip", "route", "replace", network.String(), "via", "10.78.0.2")
}

// command runs a command that has to succeed.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// nft applies rules to the packets that reach the targets.
func (w *world) nft(t *testing.T, rules string) {
	t.Helper()
	c := exec.Command("nsenter", "-t", w.pid, "-n", "nft", "-f", "-")
	c.Stdin = strings.NewReader(rules)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
}

// await reads the next line of the server.
func (w *world) await(t *testing.T, want string) {
	t.Helper()
	if !w.out.Scan() || w.out.Text() != want {
		t.Fatalf("the server says %q, want %q: %v", w.out.Text(), want, w.out.Err())
	}
}

// tell sends the server a command about the address of a target.
func (w *world) tell(t *testing.T, verb string, target int) {
	t.Helper()
	if _, err := fmt.Fprintf(w.in, "%s %s\n", verb, addressOf(target)); err != nil {
		t.Fatal(err)
	}
	w.await(t, "done")
}

// prober is a running sonde with its targets.
type prober struct {
	*world
	dir     string
	targets []target
	process *os.Process
	exited  chan struct{}
	log     *os.File // our end of its standard error
	client  httpapi.Client

	mu     sync.Mutex // guards failed
	failed map[string]string
}

// target is one target. It has one probe.
type target struct {
	name    string
	handler string
	number  int // of its address
}

// handlers are the handlers of the targets, and the share of each in percent.
var handlers = []struct {
	name  string
	share int
	block string // of the probe
}{
	{"http", 40, `http { port = "80" }`},
	{"tcp", 30, "tcp {\n  port = \"81\"\n  expect = \"ok\"\n}"},
	{"name", 10, `http { port = "80" }`}, // its address is a name
	{"redis", 10, `redis { port = "6379" }`},
	{"exec", 10, ""},
}

// build builds sonde and a plugin, once.
func build(t *testing.T, dir string) (sonde, plugin string) {
	t.Helper()
	sonde, plugin = filepath.Join(dir, "sonde"), filepath.Join(dir, "redis.wasm")
	command(t, "go", "build", "-o", sonde, "github.com/sonde-probe/sonde/cmd/engine")
	command(t, "go", "-C", "../../examples/wasm-probes", "run", "./redis", "-o", plugin)
	return sonde, plugin
}

// start runs sonde with healthy targets for the test of a fault, and waits until each
// of them was probed and passes.
func (w *world) start(t *testing.T, sonde, plugin string, f fault) *prober {
	p := &prober{world: w, dir: t.TempDir(), exited: make(chan struct{}), failed: map[string]string{}}
	w.tell(t, "mend", 0)
	p.configure(t, plugin, *count)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.log = read
	addressFile := filepath.Join(p.dir, "address")
	c := exec.Command(sonde, "run", "--address-file", addressFile, filepath.Join(p.dir, "config.hcl"))
	c.Dir, c.Stderr = p.dir, write
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	p.process = c.Process
	if !f.unread {
		go p.readLog()
	}
	go func() { _ = c.Wait(); close(p.exited) }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-p.exited
		read.Close()
	})
	testsync.Until(t, "the address of sonde", func() bool {
		text, err := os.ReadFile(addressFile)
		p.client = httpapi.Client{Base: "http://" + strings.TrimSpace(string(text)), HTTP: &http.Client{Timeout: testsync.Timeout}}
		return err == nil
	})
	p.waitFor(t, "all targets to pass", func(_ target, s state) bool { return s.verdict == probe.Passing && s.attempts > 0 })
	return p
}

// readLog reads the log until it ends, and keeps the latest line about each target.
func (p *prober) readLog() {
	for lines := bufio.NewScanner(p.log); lines.Scan(); {
		var line struct{ Target, Verdict string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Verdict == probe.Failing.String() {
			p.mu.Lock()
			p.failed[line.Target] = lines.Text()
			p.mu.Unlock()
		}
	}
}

// whyFailed returns the latest log line about a target that failed.
func (p *prober) whyFailed(tg target) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[tg.name]
}

// configure writes the configuration and what the exec probes look at.
func (p *prober) configure(t *testing.T, plugin string, count int) {
	var b strings.Builder
	fmt.Fprintf(&b, "engine {\n  listen = \"127.0.0.1:0\"\n  log_format = \"json\"\n}\n")
	fmt.Fprintf(&b, "plugin \"redis\" {\n  source = %q\n  allow_unpinned = true\n}\n", plugin)
	for _, h := range handlers {
		for n := range count * h.share / 100 {
			tg := target{name: fmt.Sprintf("%s/%d", h.name, n), handler: h.name, number: len(p.targets)}
			p.targets = append(p.targets, tg)
			address, block := addressOf(tg.number).String(), h.block
			switch h.name {
			case "exec":
				file := p.healthFile(tg)
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				block = fmt.Sprintf("exec { command = [\"test\", \"-e\", %q] }", file)
			case "name":
				address = fmt.Sprintf("h%d.test", tg.number)
			}
			kind, restart := "readiness", ""
			if n%2 == 1 { // with an initial verdict of passing, and a restart if it fails
				kind, restart = "liveness", "restart { command = [\"true\"] }"
			}
			fmt.Fprintf(&b, "target %q {\n  address = %q\n  %s\n  probe %q {\n    %s\n    period = %q\n    timeout = %q\n    failure_threshold = 1\n  }\n}\n",
				tg.name, address, restart, kind, block, period, timeout)
		}
	}
	if err := os.WriteFile(filepath.Join(p.dir, "config.hcl"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// healthFile is the file that an exec probe looks for.
func (p *prober) healthFile(tg target) string {
	return filepath.Join(p.dir, "healthy-"+strconv.Itoa(tg.number))
}

// breakTarget makes a target fail.
func (p *prober) breakTarget(t *testing.T, tg target) {
	t.Helper()
	if tg.handler != "exec" {
		p.tell(t, "break", tg.number)
		return
	}
	if err := os.Remove(p.healthFile(tg)); err != nil {
		t.Fatal(err)
	}
}

// state is what the prober says about a target.
type state struct {
	verdict  probe.Verdict
	changes  uint64
	restarts int32
	attempts uint64 // that succeeded
	result   string // of the latest attempt
	waiting  string // for what
}

// state asks the prober about all targets.
func (p *prober) state(ctx context.Context) (map[string]state, error) {
	all := make(map[string]state, len(p.targets))
	q := httpapi.Query{Limit: httpapi.MaxListed, Probes: true}
	for {
		list, err := p.client.Targets(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, tg := range list.Targets {
			for _, pr := range tg.Probes {
				s := state{verdict: pr.Verdict, changes: pr.Changes, restarts: tg.Instance.Restarts, attempts: pr.Attempts.Success}
				s.waiting = fmt.Sprintf("attempting: %v, next: %v, wait reason: %q, unknown outcomes: %d", pr.Attempting, pr.Next, pr.WaitReason, pr.Attempts.Unknown)
				if pr.Result != nil {
					s.result = fmt.Sprintf("%v at %v: %v %s", pr.Result.Outcome, pr.Result.At, pr.Result.Reason, pr.Result.Detail)
				}
				all[tg.Name] = s
			}
		}
		if q.After = list.Next; q.After == "" {
			return all, nil
		}
	}
}

// waitLimit is how long waitFor waits.
const waitLimit = time.Minute

// waitFor asks for the state of all targets until a condition is true for each, and
// returns how long that took.
func (p *prober) waitFor(t *testing.T, what string, condition func(target, state) bool) time.Duration {
	t.Helper()
	start := time.Now()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-p.exited:
			t.Fatal("sonde has exited")
		case <-ticker.C:
		}
		all, err := p.state(t.Context())
		first := slices.IndexFunc(p.targets, func(tg target) bool { return !condition(tg, all[tg.name]) })
		switch took := time.Since(start); {
		case err == nil && first < 0:
			return took
		case took > waitLimit && err != nil:
			t.Fatalf("timed out waiting for %s: %v", what, err)
		case took > waitLimit:
			name := p.targets[first].name
			t.Fatalf("timed out waiting for %s: %s is %+v", what, name, all[name])
		}
	}
}
