package fleet

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/fleet/shard"
)

// crowd is a set of engines that share many targets, all of which are well.
type crowd struct {
	t        *testing.T
	program  string
	dir      string
	nodes    []*node
	observer *observer
	engines  map[string]*process
	changed  map[string]int // by engine: number of changed verdicts when settle was called
	state    string         // the condition that settle waits for, shown if the test fails
}

// maxBlock is the number of targets in one block of the configuration: up to 200,000 are allowed.
const maxBlock = 100_000

// The ports of the servers that stand for the targets, on all addresses of this machine. With only one server, connections could
// wait for it longer than a probe does while this process waits for a processor.
const (
	firstServer = 20_000
	servers     = 16
)

// serve accepts the connections of probes until the test ends.
func serve(t *testing.T, port int) {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprint("0.0.0.0:", port))
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			connection, err := l.Accept()
			if err != nil {
				return
			}
			connection.Close()
		}
	})
	t.Cleanup(func() { l.Close(); accepting.Wait() })
}

// config returns the configuration of all engines. Each target has its own address.
func (c *crowd) config() string {
	var text strings.Builder
	fmt.Fprintf(&text, `cluster {
  endpoints = split(" ", env("ENDPOINTS"))
}

defaults {
  timeout           = "5s"
  period            = "%v"
  failure_threshold = 5
}
`, *period)
	for from := 0; from < *targets; from += maxBlock {
		thousands := min(*targets-from, maxBlock) / 1000
		fmt.Fprintf(&text, `
target "web-%d" {
  for_each = merge([for n in range(%d) : { for i in range(1000) : tostring(1000 * n + i) => 1000 * n + i }]...)
  address  = cidrhost("127.128.0.0/9", %d + each.value)

  probe "readiness" {
    tcp { port = %d + each.value %% %d }
  }
}
`, from/maxBlock, thousands, 1+from, firstServer, servers)
	}
	return text.String()
}

// startCrowd starts engines, and waits until all targets are ready and nothing changes any more.
func startCrowd(t *testing.T, nodes []*node, names ...string) *crowd {
	t.Helper()
	path := build(t)
	c := &crowd{t: t, program: path, dir: t.TempDir(), nodes: nodes, engines: map[string]*process{}, changed: map[string]int{}}
	c.observer = observe(t, connect(t, nodes), "/sonde/")
	for i := range servers {
		serve(t, firstServer+i)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "config.hcl"), []byte(c.config()), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		c.start(name)
	}
	c.settle()
	return c
}

func (c *crowd) start(name string) {
	c.t.Helper()
	var endpoints []string
	for _, n := range c.nodes {
		endpoints = append(endpoints, n.url())
	}
	c.engines[name] = startProcess(c.t, c.program, c.dir, name, "ENDPOINTS="+strings.Join(endpoints, " "))
}

// membership is the report of an engine about its shards and targets.
type membership struct{ Targets, Owned int }

// settle waits until the engines together have all targets, and nothing has been written for a while. It records the number of
// verdicts that have changed by then.
func (c *crowd) settle() {
	c.t.Helper()
	const idle = 4 * time.Second // several times as long as engines collect changes
	last, since := 0, time.Now()
	c.await("the engines share all targets, and write nothing", func() bool {
		owned := 0
		for _, p := range c.engines {
			var m membership
			if err := p.get("/v1/cluster", &m); err != nil {
				c.state = err.Error()
				return false
			}
			owned += m.Owned
		}
		now, _ := c.observer.counts()
		c.state = fmt.Sprintf("%d targets are owned, %d changes of keys", owned, now)
		if now != last || owned != *targets || !c.observer.isDivided(len(c.engines)) {
			last, since = now, time.Now()
		}
		return time.Since(since) > *period+idle
	})
	for name := range c.engines {
		c.changed[name] = len(c.verdicts(name))
	}
}

// verdicts returns the lines of an engine's log about changed verdicts.
func (c *crowd) verdicts(name string) []string {
	return linesOf(c.t, c.dir, name, `msg="verdict changed"`)
}

// checkUnchanged reports verdicts that have changed since settle.
func (c *crowd) checkUnchanged(when string) {
	c.t.Helper()
	for name := range c.engines {
		if changed := c.verdicts(name)[c.changed[name]:]; len(changed) > 0 {
			c.t.Errorf("%s: %d verdicts have changed in %s:\n%s", when, len(changed), name, strings.Join(changed[:min(10, len(changed))], "\n"))
		}
	}
}

func (c *crowd) await(what string, holds func() bool) {
	c.t.Helper()
	limit := patience + time.Duration(*targets/1000)*2*time.Second + 5**period
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("timeout waiting until %s: %s\n%s", what, c.state, logsOf(c.dir))
		}
	}
}

// share returns the number of shards per engine if that many engines share them.
func share(engines int) int { return shard.Count / engines }

// checkMoved reports an error if, since claims were counted as before, more shards than a share plus a tenth have moved.
func (c *crowd) checkMoved(what string, before, share int) {
	c.t.Helper()
	_, now := c.observer.counts()
	c.t.Logf("%s: %d shards moved, a share is %d", what, now-before, share)
	if now-before > share*11/10 {
		c.t.Errorf("%s: %d shards moved, which is more than %d and a tenth", what, now-before, share)
	}
}

func TestManyTargetsAreTakenOver(t *testing.T) {
	needRoot(t)
	t.Parallel()
	c := startCrowd(t, startEtcd(t, 3, 2200), "engine-0", "engine-1", "engine-2", "engine-3")
	c.measure()

	_, before := c.observer.counts()
	killed := time.Now()
	c.engines["engine-1"].end(syscall.SIGKILL)
	delete(c.engines, "engine-1")
	c.await("all shards are taken over", func() bool { return c.observer.isDivided(3) })
	took := c.observer.lastClaim().Sub(killed)
	t.Logf("kill -9: all shards were taken over %v after it, ttl is %v", took.Round(10*time.Millisecond), coord.DefaultTTL)
	if *quiet && took > coord.DefaultTTL+time.Second {
		t.Errorf("shards were taken over after %v", took)
	}
	c.checkMoved("kill -9", before, share(4))
	c.settleUnchanged("kill -9")

	_, before = c.observer.counts()
	c.start("engine-4")
	c.settleUnchanged("join")
	c.checkMoved("join", before, share(4))

	_, before = c.observer.counts()
	c.engines["engine-4"].end(syscall.SIGTERM)
	delete(c.engines, "engine-4")
	c.settleUnchanged("leave")
	c.checkMoved("leave", before, share(4))
}

// settleUnchanged is settle, and checks that no verdict has changed meanwhile.
func (c *crowd) settleUnchanged(when string) {
	c.t.Helper()
	before := maps.Clone(c.changed)
	c.settle()
	after := c.changed
	c.changed = before
	c.checkUnchanged(when)
	c.changed = after
}

// measure logs the resources that engines and etcd use while nothing changes, and reports keys that change nevertheless.
func (c *crowd) measure() {
	c.t.Helper()
	used := map[string]time.Duration{}
	for tries := 1; ; tries++ { // on a loaded machine, first attempts may be late
		before, _ := c.observer.counts()
		for name, p := range c.engines {
			used[name] = cpuTime(c.t, p)
		}
		time.Sleep(*steady)
		after, _ := c.observer.counts()
		if after == before {
			break
		}
		if *quiet || tries == 5 {
			c.t.Fatalf("%d keys were changed in %v in which nothing has happened", after-before, *steady)
		}
	}
	for name, p := range c.engines {
		var m membership
		if err := p.get("/v1/cluster", &m); err != nil {
			c.t.Fatal(err)
		}
		busy := float64(cpuTime(c.t, p)-used[name]) / float64(*steady)
		c.t.Logf("%s: %d of %d targets, %d MB, %.3f processors busy", name, m.Owned, m.Targets, memory(c.t, p.cmd.Process.Pid), busy)
	}
	for i, n := range c.nodes {
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		status, err := c.observer.client.Status(ctx, n.url())
		cancel()
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Logf("etcd node %d: %d MB, database %.1f MB", i, memory(c.t, n.process.Process.Pid), float64(status.DbSize)/1e6)
	}
}

// memory returns the resident memory of a process, in megabytes.
func memory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	kilobytes, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes / 1000
}

// cpuTime returns the processor time that an engine has used.
func cpuTime(t *testing.T, p *process) time.Duration {
	t.Helper()
	fields, err := statOf(strconv.Itoa(p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	user, _ := strconv.Atoi(fields[11]) // the kernel writes numbers
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100
}
