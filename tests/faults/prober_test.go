//go:build linux

package faults

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// The rule of every probe, unless a fault has another period: a single failure is published.
const (
	usualPeriod = 2 * time.Second
	timeout     = 900 * time.Millisecond
)

// prober is a running sonde with its targets, and HAProxy with the same ones.
type prober struct {
	*world
	dir     string
	disk    string // a directory for the state file and, if it is full, the log
	period  time.Duration
	targets []target

	nameServers []int // the numbers of their addresses
	process     *os.Process
	exited      chan struct{}
	log         *os.File // our end of its standard error
	client      api.Client
	haproxy     *haproxy // nil if there is none

	mu     sync.Mutex // guards failed
	failed map[string]string
}

// target is one target. It has one probe.
type target struct {
	name    string
	handler string
	number  int // of its address
	place   int // among the targets with its handler
}

// handler is a handler of targets.
type handler struct {
	name  string
	share int    // of the targets, in percent
	block string // of the probe
}

// handlers are the handlers of the targets. An exec probe costs a process.
var handlers = []handler{
	{"http", 50, `http { port = "80" }`},
	{"tcp", 30, "tcp {\n  port = \"81\"\n  expect = \"ok\"\n}"},
	{"name", 8, `http { port = "80" }`}, // its address is a name
	{"redis", 8, `redis { port = "6379" }`},
	{"exec", 4, ""},
}

// targets returns the number of targets with a handler.
func (f fault) targets(h handler) int {
	switch {
	case f.liveness == 0:
		return max(*count*h.share/100, firstHealthy+2)
	case h.name == "http":
		return f.liveness
	}
	return 0
}

// samples is the number of targets of each handler that fail before the fault: the slowest one determines the usual time.
const samples = 5

// role is what a test does with a target. Targets that it breaks have readiness probes, which restart nothing.
type role int

const (
	healthy      role = iota
	brokenBefore      // broken before the fault
	brokenDuring      // broken during the fault
	hungDuring
)

// firstHealthy is the place of the first target that a test does not break.
const firstHealthy = samples + 2

func (tg target) role() role {
	switch {
	case tg.place < samples:
		return brokenBefore
	case tg.place == samples:
		return brokenDuring
	case tg.place < firstHealthy:
		return hungDuring
	}
	return healthy
}

func (tg target) isHealthy() bool { return tg.role() == healthy }

// start runs sonde with healthy targets for the test of a fault, and waits until each of them has been probed and passes.
func (w *world) start(t *testing.T, sonde, plugin string, f fault) *prober {
	p := &prober{world: w, dir: t.TempDir(), disk: t.TempDir(), period: usualPeriod, exited: make(chan struct{}), failed: map[string]string{}, nameServers: []int{nameServer}}
	if f.twoNameServers {
		p.nameServers = []int{otherNameServer, nameServer}
	}
	useNameServers(t, p.nameServers...)
	if tier.IsLong() {
		p.period = cmp.Or(f.period, usualPeriod)
	}
	w.tell(t, "mend")
	w.tell(t, "delay "+f.delay.String())
	p.configure(t, plugin, f)
	if f.diskFull {
		p.fillDisk(t)
	}
	addressFile := filepath.Join(p.dir, "address")
	c := exec.Command(sonde, "run", "--address-file", addressFile, filepath.Join(p.dir, "config.hcl"))
	c.Dir, c.Stderr = p.dir, p.openLog(t, f)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.Stderr.(*os.File).Close()
	p.process = c.Process
	go func() { _ = c.Wait(); close(p.exited) }()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-p.exited
		p.killAdopted(t)
		if p.log != nil {
			p.log.Close()
		}
	})
	testsync.Until(t, "the address of sonde", func() bool {
		text, err := os.ReadFile(addressFile)
		p.client = api.Client{Base: "http://" + strings.TrimSpace(string(text)), HTTP: &http.Client{Timeout: testsync.Timeout}}
		return err == nil
	})
	p.waitFor(t, "all targets to pass", func(_ target, s state) bool { return s.verdict == probe.Passing && s.attempts > 0 })
	if tier.IsLong() && !f.alone {
		p.haproxy = p.startHAProxy(t)
	}
	return p
}

// openLog returns the standard error of sonde: a pipe, or a file on the full disk.
func (p *prober) openLog(t *testing.T, f fault) *os.File {
	if f.diskFull {
		file, err := os.Create(filepath.Join(p.disk, "log"))
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.log = read
	if !f.unread {
		go p.readLog()
	}
	return write
}

// readLog reads the log to its end, and keeps the latest line about each target.
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

// diskSize is the size of a full disk.
const diskSize = 64 << 20

// fillDisk mounts a small disk at p.disk and fills it.
func (p *prober) fillDisk(t *testing.T) {
	faulttest.SmallDisk(t, p.disk, fmt.Sprintf("size=%d", diskSize))
	filler, err := os.Create(p.filler())
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for block := make([]byte, 64<<10); err == nil; {
		_, err = filler.Write(block)
	}
}

func (p *prober) filler() string { return filepath.Join(p.disk, "filler") }

func (p *prober) stateFile() string { return filepath.Join(p.disk, "sonde.state") }

// configure writes the configuration, and the files that the exec probes check.
func (p *prober) configure(t *testing.T, plugin string, f fault) {
	var b strings.Builder
	fmt.Fprintf(&b, "engine {\n  listen = \"127.0.0.1:0\"\n  log_format = \"json\"\n  state = %q\n}\n", p.stateFile())
	fmt.Fprintf(&b, "plugin \"redis\" {\n  source = %q\n  allow_unpinned = true\n}\n", plugin)
	for _, h := range handlers {
		for n := range f.targets(h) {
			tg := target{name: fmt.Sprintf("%s/%d", h.name, n), handler: h.name, number: len(p.targets), place: n}
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
			if tg.isHealthy() && (n%2 == 1 || f.liveness > 0) { // with the initial verdict passing, and a restart on failure
				kind, restart = "liveness", "restart { command = [\"true\"] }"
			}
			fmt.Fprintf(&b, "target %q {\n  address = %q\n  %s\n  probe %q {\n    %s\n    period = %q\n    timeout = %q\n    failure_threshold = 1\n  }\n}\n",
				tg.name, address, restart, kind, block, p.period, timeout)
		}
	}
	if f.diskFull {
		p.configureAdopted(&b)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "config.hcl"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// adoptedTarget returns the target of a process that outlives the prober. It is not among the targets that are compared.
func (p *prober) adoptedTarget() target { return target{name: "adopted", handler: "exec"} }

// pidFile returns the file to which the process of the adopted target writes its ID.
func (p *prober) pidFile() string { return filepath.Join(p.dir, "adopted.pid") }

func (p *prober) configureAdopted(b *strings.Builder) {
	fmt.Fprintf(b, "target %q {\n  process {\n    command = [\"sh\", \"-c\", \"echo $$$$ >%s; exec sleep 100000\"]\n    adopt = true\n  }\n", p.adoptedTarget().name, p.pidFile())
	fmt.Fprintf(b, "  probe \"readiness\" {\n    exec { command = [\"true\"] }\n    period = %q\n    timeout = %q\n  }\n}\n", p.period, timeout)
}

// killAdopted kills the process of the adopted target, if it is running.
func (p *prober) killAdopted(t *testing.T) {
	text, err := os.ReadFile(p.pidFile())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	pid, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		t.Fatalf("process of the adopted target: %v, %v", err, parseErr)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
}

// healthFile returns the file that an exec probe checks for.
func (p *prober) healthFile(tg target) string {
	return filepath.Join(p.dir, "healthy-"+strconv.Itoa(tg.number))
}

// breakTarget makes a target fail, by its responses or by silence.
func (p *prober) breakTarget(t *testing.T, tg target, verb string) {
	t.Helper()
	if tg.handler != "exec" {
		p.tell(t, verb+" "+addressOf(tg.number).String())
		return
	}
	if err := os.Remove(p.healthFile(tg)); err != nil {
		t.Fatal(err)
	}
}

// reading is the prober's report about itself and all targets.
type reading struct {
	targets     map[string]state
	health      api.Health
	logDropped  float64 // records
	stateErrors float64 // failed writes of the state file
}

// read queries the prober for a reading.
func (p *prober) read(t *testing.T) (r reading) {
	t.Helper()
	stats, err := p.client.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.health = stats.Health
	if r.targets, err = p.state(t.Context()); err != nil {
		t.Fatal(err)
	}
	response, err := p.client.HTTP.Get(p.client.Base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "sonde_log_records_dropped_total":
			r.logDropped, err = strconv.ParseFloat(value, 64)
		case "sonde_state_write_errors_total":
			r.stateErrors, err = strconv.ParseFloat(value, 64)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// state is the prober's report about a target.
type state struct {
	verdict  probe.Verdict
	changes  uint64
	restarts int32
	attempts uint64 // that succeeded
	unknown  uint64 // attempts
	result   string // of the latest attempt
	waiting  string // the reason for waiting
}

func stateOf(tg api.Target) state {
	pr := tg.Probes[0]
	s := state{
		verdict: pr.Verdict, changes: pr.Changes, restarts: tg.Instance.Restarts,
		attempts: pr.Attempts.Success, unknown: pr.Attempts.Unknown,
		waiting: fmt.Sprintf("attempting: %v, next: %v, wait reason: %q", pr.Attempting, pr.Next, pr.WaitReason),
	}
	if pr.Result != nil {
		s.result = fmt.Sprintf("%v at %v: %v %s", pr.Result.Outcome, pr.Result.At, pr.Result.Reason, pr.Result.Detail)
	}
	return s
}

// state queries the prober about targets, or about all.
func (p *prober) state(ctx context.Context, targets ...target) (map[string]state, error) {
	all := make(map[string]state, len(p.targets))
	for _, tg := range targets {
		answer, err := p.client.Target(ctx, tg.name)
		if err != nil {
			return nil, err
		}
		all[tg.name] = stateOf(answer)
	}
	if len(targets) > 0 {
		return all, nil
	}
	for q := (api.Query{Limit: api.MaxListed, Probes: true}); ; {
		page, err := p.client.Targets(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, tg := range page.Targets {
			all[tg.Name] = stateOf(tg)
		}
		if q.After = page.Next; q.After == "" {
			return all, nil
		}
	}
}

// waitLimit is how long waitFor waits, and pollPause the time between two of its queries, which cost a starved prober some of its
// time.
const (
	waitLimit = 5 * time.Minute
	pollPause = 200 * time.Millisecond
)

// waitFor queries the state of targets, or of all, until a condition is true for each, and returns how long that took.
func (p *prober) waitFor(t *testing.T, what string, condition func(target, state) bool, targets ...target) time.Duration {
	t.Helper()
	start := time.Now()
	ticker := time.NewTicker(pollPause)
	defer ticker.Stop()
	asked := targets
	if len(asked) == 0 {
		asked = p.targets
	}
	for {
		select {
		case <-p.exited:
			t.Fatal("sonde has exited")
		case <-ticker.C:
		}
		all, err := p.state(t.Context(), targets...)
		first := slices.IndexFunc(asked, func(tg target) bool { return !condition(tg, all[tg.name]) })
		switch took := time.Since(start); {
		case err == nil && first < 0:
			return took
		case took > waitLimit && err != nil:
			t.Fatalf("timed out waiting for %s: %v", what, err)
		case took > waitLimit:
			name := asked[first].name
			t.Fatalf("timed out waiting for %s: %s is %+v", what, name, all[name])
		}
	}
}
