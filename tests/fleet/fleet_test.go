package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/faulttest"
)

// The size of each fleet. The well targets never fail.
const (
	engines     = 3
	sickTargets = 24
	wellTargets = 24
)

// steadyFleet is the first number of fleets in which nothing must change before etcd is stopped: their leases are longer than a
// loaded machine stalls, even right before they are kept alive.
const steadyFleet = 60

// ttl returns the TTL of the engines' leases; for every other fleet it is the minimum.
func (f *fleet) ttl() time.Duration {
	if f.number >= steadyFleet {
		return 40 * time.Second
	}
	return coord.MinTTL + time.Duration(f.number%2)*4*time.Second
}

// fleet is engines that share targets, each target with a restart command.
type fleet struct {
	t        *testing.T
	program  string
	dir      string // of the configuration and the logs
	number   int    // unique, from 0
	random   *rand.Rand
	world    *world
	nodes    []*node
	client   *clientv3.Client
	observer *observer
	engines  [engines]*process
	repeated int // restarts that were not recorded, and were repeated although they had succeeded
}

// startFleet starts engines that share targets, and waits until they do.
func startFleet(t *testing.T, program string, nodes []*node, w *world, number int, seed uint64) *fleet {
	t.Helper()
	f := &fleet{
		t: t, program: program, dir: t.TempDir(), number: number, random: rand.New(rand.NewPCG(seed, 1)),
		world: w, nodes: nodes, client: connect(t, nodes),
	}
	f.observer = observe(t, f.client, f.prefix())
	for i := range sickTargets {
		w.add(f.path(sickName(i)), func() string { return f.observer.instance(sickName(i)) })
	}
	for i := range wellTargets {
		w.add(f.path(wellName(i)), func() string { return f.observer.instance(wellName(i)) })
	}
	if err := os.WriteFile(filepath.Join(f.dir, "config.hcl"), []byte(f.config()), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range engines {
		f.start(i)
	}
	until(t, "the engines share all targets", func() bool { return f.observer.isDivided(engines) })
	return f
}

func sickName(i int) string { return fmt.Sprint("sick-", i) }
func wellName(i int) string { return fmt.Sprint("well-", i) }

// prefix returns the prefix of all keys of the fleet.
func (f *fleet) prefix() string { return fmt.Sprintf("/fleet-%d/", f.number) }

// path returns the name of a target in the world.
func (f *fleet) path(target string) string { return fmt.Sprintf("%d/%s", f.number, target) }

// config returns the configuration of all engines.
func (f *fleet) config() string {
	var c strings.Builder
	fmt.Fprintf(&c, `engine { restart_budget = { share = "100%%", per = "5m" } }

cluster {
  endpoints = split(" ", env("ENDPOINTS"))
  prefix    = %q
  ttl       = "%v"
}

defaults {
  timeout = "5s"
  period  = "1s"
}
`, f.prefix(), f.ttl())
	_, port, _ := net.SplitHostPort(f.world.address)
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range sickTargets + wellTargets {
		name, threshold := sickName(i), 2
		if i >= sickTargets {
			name, threshold = wellName(i-sickTargets), 5 // a loaded machine must not make it fail
		}
		fmt.Fprintf(&c, `
target %q {
  address                  = "127.0.0.1"
  termination_grace_period = "1s"

  back_off {
    initial = "1s"
    max     = "1s"
  }

  restart { command = [%q, %q, %q, %q] }

  probe "liveness" {
    failure_threshold = %d
    http {
      port = %s
      path = "/%s"
    }
  }
}
`, name, self, restartCommand, f.world.socket, f.path(name), threshold, port, f.path(name))
	}
	return c.String()
}

// start starts an engine, or a successor with its name, with additional environment variables.
func (f *fleet) start(i int, env ...string) {
	f.t.Helper()
	var endpoints []string
	for _, n := range f.nodes {
		for way := range ways {
			endpoints = append(endpoints, fmt.Sprintf("http://%s:%d", f.way(i, way), n.port))
		}
	}
	p := startProcess(f.t, f.program, f.dir, fmt.Sprint("engine-", i), append(env, "ENDPOINTS="+strings.Join(endpoints, " "))...)
	f.world.know(p)
	f.engines[i] = p
}

// ways is the number of addresses that an engine has for a node of etcd.
const ways = 3

// way returns an address by which only one engine reaches etcd.
func (f *fleet) way(engine, way int) string {
	return fmt.Sprintf("127.64.%d.%d", 1+f.number*engines+engine, 1+way)
}

// filter drops packets between an engine and etcd by rules, whose %s stands for an address, until heal is called. It does not
// affect the targets.
func (f *fleet) filter(engine int, rules ...string) (heal func()) {
	var chain strings.Builder
	for way := range ways {
		for _, rule := range rules {
			fmt.Fprintf(&chain, rule+" drop\n", f.way(engine, way))
		}
	}
	return faulttest.Filter(f.t, "chain output { type filter hook output priority 0;\n"+chain.String()+"}")
}

// Rules for filter.
const (
	sent     = "ip daddr %s"                  // packets from the engine
	received = "ip saddr %s"                  // packets to the engine
	large    = "ip saddr %s ip length > 1000" // large packets to the engine, as on a path with an unknown smaller MTU
)

// settle waits until nothing fails any more, and all engines share the targets.
func (f *fleet) settle() {
	f.t.Helper()
	f.await("all targets are restarted", func() bool { return len(f.world.sick(f.path(""))) == 0 })
	f.await("the observer has seen all changes", func() bool { return f.observer.hasCaughtUp(5 * time.Second) })
	f.await("the engines share all targets", func() bool { return f.observer.isDivided(engines) })
}

// await waits until a condition holds, and reports the state of the fleet if it does not in time.
func (f *fleet) await(what string, holds func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	for ; !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("timeout waiting until %s; sick: %v\n%s", what, f.world.sick(f.path("")), logsOf(f.dir))
		}
	}
}

// logsOf returns the ends of the engines' logs in a folder.
func logsOf(dir string) (all string) {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is valid
	for _, path := range paths {
		text, _ := os.ReadFile(path) // of a failing test
		all += fmt.Sprintf("%s:\n%s\n", filepath.Base(path), text[max(0, len(text)-4000):])
	}
	return all
}

// broken returns how the acts since the last call break the laws. It waits until no act is running.
func (f *fleet) broken() (laws []string) {
	f.t.Helper()
	var acts []act
	f.await("no restart command runs", func() bool {
		ended, areMore := f.world.takeActs(f.path(""))
		acts = append(acts, ended...)
		return !areMore
	})
	f.await("the observer has seen all changes", func() bool { return f.observer.hasCaughtUp(5 * time.Second) })
	for _, a := range acts {
		for _, law := range f.judge(a) {
			laws = append(laws, law+": "+a.String()+a.engine.history())
		}
	}
	for i := range engines {
		name := fmt.Sprint("engine-", i)
		for _, line := range linesOf(f.t, f.dir, name, "target=well-", "verdict=failing") {
			laws = append(laws, "a verdict of a healthy target has changed: "+name+": "+line)
		}
	}
	f.observer.seenMu.Lock()
	defer f.observer.seenMu.Unlock()
	if f.observer.failed != nil {
		f.t.Fatal("the watch of the observer has ended: ", f.observer.failed)
	}
	return laws
}

// judge returns the laws that an act breaks. A restart that its engine could not record must only be repeated if the target fails,
// as docs/fleet.md says of commands.
func (f *fleet) judge(a act) (broken []string) {
	target := strings.TrimPrefix(a.target, f.path(""))
	law := func(isKept bool, text string) {
		if !isKept {
			broken = append(broken, text)
		}
	}
	owner := func(at time.Time) string { return f.observer.ownerAt(target, a.instance, at) }
	law(a.engine != nil, "the engine of a restart is not known")
	if a.engine == nil {
		return broken
	}
	// A frozen engine and its commands resume at the same moment, and no clock shows that a lease was revoked early.
	cannotKnow := a.engine.suffered(freeze, a.started, a.ended) || a.engine.suffered(hasten, a.started, a.ended)
	// A restart that was recorded in time begins even if the lease is revoked meanwhile.
	isRecorded := a.engine.suffered(hasten, a.started, a.ended) && f.observer.hasRecorded(a.engine.name, target, a.instance)
	law(isRecorded || owner(a.started) == a.engine.name, fmt.Sprintf("a restart was begun when %s had claimed the shard", owner(a.started)))
	law(cannotKnow || owner(a.ended) == a.engine.name, fmt.Sprintf("a restart went on when %s had claimed the shard", owner(a.ended)))
	for _, other := range a.overlaps {
		canKnow := other.engine != nil && !other.engine.suffered(freeze, other.started, a.started) && !other.engine.suffered(hasten, other.started, a.started)
		law(!canKnow, "two restarts of a target at the same time: "+other.String())
	}
	switch before := a.before; {
	case !a.wasHealthy:
	case before == nil:
		law(false, "a target was restarted that had never failed")
	case before.instance != a.instance:
		law(false, "an instance was restarted that had never failed, "+a.instance)
	case f.observer.isRecorded(a.instance, a.started):
		law(false, "an instance was restarted twice, "+a.instance)
	case !f.mayRepeat(a):
		law(false, "an instance was restarted twice, although its target was well: "+before.String())
	default:
		f.repeated++
	}
	return broken
}

// mayRepeat reports whether a restart may repeat the previous one although that has succeeded: its engine could detect a failing
// target because either engine was frozen together with its command, or lost its lease without notice.
func (f *fleet) mayRepeat(a act) bool {
	if a.before.engine == nil {
		return true // which itself breaks a law
	}
	from := a.before.ended.Add(-f.ttl())
	for _, kind := range []string{freeze, hasten} {
		if a.before.engine.suffered(kind, from, a.before.ended.Add(f.ttl())) || a.engine.suffered(kind, from, a.started) {
			return true
		}
	}
	return false
}

// revoke revokes the lease of an engine, as if it had expired earlier than the engine's clock says.
func (f *fleet) revoke(engine int) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if lease := f.observer.lease(f.engines[engine].name); lease != 0 {
		_, _ = f.client.Revoke(ctx, lease) // it may have expired
	}
}

// compact makes etcd discard old revisions of keys, like its --auto-compaction-mode.
func compact(t *testing.T, client *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	now, err := client.Get(ctx, "x")
	if err == nil && now.Header.Revision > retained {
		_, err = client.Compact(ctx, now.Header.Revision-retained)
	}
	if err != nil && !strings.Contains(err.Error(), "compacted") { // by another fleet
		t.Error(err)
	}
}

// retained is the number of revisions that compact keeps.
const retained = 2000
