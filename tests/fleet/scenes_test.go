package fleet

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/coord"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// The requirements for every scene, and the configuration of its engines. Probes show a sick target as unready after detection at
// the latest, unless the machine stalls.
const (
	maxMedian  = 8 * time.Second                    // from a failure to its restart
	maxRestart = coord.DefaultTTL + 10*time.Second  // the same, while etcd is available
	mustTell   = 20 * time.Second                   // targets that are unready for that long must be reported
	detection  = 2*scenePeriod + 2*time.Second      // failure_threshold is 2
	watched    = mustTell + detection + time.Second // how long a target that nobody restarts is sick

	scenePeriod = 2 * time.Second
)

// scene is a sequence of events in a fleet while targets fail.
type scene struct {
	name   string
	play   func(*stage)
	isInCI bool
}

// scenes are all scenes.
var scenes = []scene{
	{"100 at once", func(s *stage) { s.fail(100) }, false},
	{"kill -9", func(s *stage) {
		s.fail(s.wave)
		time.Sleep(time.Second)
		s.engines[1].end(syscall.SIGKILL)
		s.fail(s.wave)
		time.Sleep(coord.DefaultTTL)
		s.fail(s.wave)
		time.Sleep(10 * time.Second)
		s.start(1)
	}, true},
	{"SIGSTOP", func(s *stage) {
		s.fail(s.wave)
		s.engines[1].signal(syscall.SIGSTOP)
		s.fail(s.wave)
		time.Sleep(10 * time.Second)
		s.fail(s.wave)
		time.Sleep(10 * time.Second)
		s.engines[1].signal(syscall.SIGCONT)
		s.failBriefly(s.wave)
	}, true},
	{"etcd killed", func(s *stage) {
		s.outage(func(n *node) { n.end(syscall.SIGKILL) }, func(n *node) { n.start(s.t) })
	}, true},
	{"etcd frozen", func(s *stage) {
		s.outage(func(n *node) { _ = n.process.Process.Signal(syscall.SIGSTOP) }, func(n *node) { _ = n.process.Process.Signal(syscall.SIGCONT) })
	}, false},
	{"cut from etcd", func(s *stage) {
		heal := s.filter(1, sent, received)
		s.fail(s.wave)
		time.Sleep(15 * time.Second)
		s.fail(s.wave)
		time.Sleep(15 * time.Second)
		heal()
		s.fail(s.wave)
	}, false},
	{"cut from all", func(s *stage) {
		heal := s.isolate(1)
		s.fail(s.wave)
		time.Sleep(15 * time.Second)
		s.fail(s.wave)
		time.Sleep(15 * time.Second)
		heal()
		s.fail(s.wave)
	}, false},
	{"rolling restart", func(s *stage) {
		for i := range engines {
			s.fail(s.wave)
			s.engines[i].end(syscall.SIGTERM)
			s.start(i)
			time.Sleep(5 * time.Second)
		}
	}, false},
	{"name collision", func(s *stage) {
		s.fail(s.wave)
		first := s.engines[1]
		address, err := os.ReadFile(first.address)
		s.start(1)
		other := s.engines[1]
		s.fail(s.wave)
		time.Sleep(3 * coord.DefaultTTL)
		s.fail(s.wave)
		other.end(syscall.SIGKILL)
		if s.engines[1] = first; err != nil || os.WriteFile(first.address, address, 0o644) != nil {
			s.t.Fatal("the address of the first engine is lost")
		}
	}, false},
	{"etcd wiped", func(s *stage) { s.replaceData(func(string) {}) }, false},
	{"etcd restored", func(s *stage) {
		n := s.nodes[0]
		n.end(syscall.SIGKILL)
		kept := filepath.Join(s.t.TempDir(), "kept")
		copyData(s.t, n.dir, kept)
		n.start(s.t)
		s.awaitShared()
		s.fail(s.wave)
		time.Sleep(15 * time.Second)
		s.replaceData(func(dir string) { copyData(s.t, kept, dir) })
	}, false},
	{"drain", func(s *stage) {
		s.fail(s.wave)
		s.command("cluster", "drain", "engine-1", "--timeout", "60s")
		s.fail(s.wave)
		s.command("cluster", "undrain", "engine-1")
		s.fail(s.wave)
	}, false},
}

// stage is a fleet whose targets fail in a scene, and the receiver of its notices.
type stage struct {
	*fleet
	size

	healing  sync.WaitGroup
	fallen   map[string]time.Time // when targets became sick
	unfailed []string             // targets to be restarted that have not failed yet
	unseen   []string             // targets that nobody restarts, which have not failed yet
	away     []fault              // the times without etcd

	noticeMu sync.Mutex // guards all below
	told     map[string]int
	resolved map[string]int
	cured    map[string]time.Time
	firstAt  map[string]time.Time
}

// size is the size of a scene.
type size struct {
	restarted int           // number of targets that are restarted: run-I
	watched   int           // number of targets that nobody restarts: see-I
	wave      int           // number of targets that fail together
	silence   time.Duration // how long etcd is unavailable before targets fail
	isLong    bool          // etcd is unavailable for longer, more targets fail, and limits of time apply
}

func TestScenes(t *testing.T) {
	needRoot(t)
	t.Parallel()
	path := build(t)
	short, long := size{60, 30, 12, 2 * time.Second, false}, size{240, 60, 48, 8 * time.Second, true}
	sizes := tier.Pick(short, short, long)
	for i, of := range scenes {
		t.Run(of.name, func(t *testing.T) {
			if !of.isInCI {
				tier.Long(t)
			}
			if !tier.IsLong() {
				t.Parallel() // the machine is also busy then
			}
			s := startStage(t, path, cityFleet+2+i, 4000+10*i, sizes)
			of.play(s)
			s.end(of.name)
		})
	}
}

// startStage starts engines that share targets, and waits until all targets are ready.
func startStage(t *testing.T, program string, number, port int, sizes size) *stage {
	t.Helper()
	nodes := startEtcd(t, 1, port)
	s := &stage{
		fleet: &fleet{
			t: t, program: program, dir: t.TempDir(), number: number, random: rand.New(rand.NewPCG(*first, 1)),
			world: newWorld(t), nodes: nodes, client: connect(t, nodes),
		},
		size:   sizes,
		fallen: map[string]time.Time{}, told: map[string]int{}, resolved: map[string]int{}, cured: map[string]time.Time{}, firstAt: map[string]time.Time{},
	}
	receiver := httptest.NewServer(s)
	t.Cleanup(receiver.Close)
	for i := range s.restarted {
		s.unfailed = append(s.unfailed, fmt.Sprint("run-", i))
	}
	for i := range s.watched {
		s.unseen = append(s.unseen, fmt.Sprint("see-", i))
	}
	for _, name := range slices.Concat(s.unfailed, s.unseen) {
		s.world.add(s.path(name), func() string { return "" })
	}
	if err := os.WriteFile(filepath.Join(s.dir, "config.hcl"), []byte(s.config(receiver.URL)), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range engines {
		s.start(i)
	}
	s.awaitShared()
	t.Cleanup(s.healing.Wait)
	return s
}

// config returns the configuration of all engines, which send notices to a receiver.
func (s *stage) config(receiver string) string {
	var c strings.Builder
	fmt.Fprintf(&c, `engine { restart_budget = { max = 10000, per = "1m" } }

cluster {
  endpoints = split(" ", env("ENDPOINTS"))
  prefix    = %q
}

defaults {
  timeout = "5s"
  period  = "%v"
}

notify "test" {
  webhook { url = %q }
}
`, s.prefix(), scenePeriod, receiver)
	_, port, _ := net.SplitHostPort(s.world.address)
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	probe := func(kind, name string) string {
		return fmt.Sprintf("  probe %q {\n    failure_threshold = 2\n    http {\n      port = %s\n      path = \"/%s\"\n    }\n  }\n", kind, port, s.path(name))
	}
	for _, name := range slices.Concat(s.unfailed, s.unseen) {
		fmt.Fprintf(&c, "\ntarget %q {\n  address = \"127.0.0.1\"\n", name)
		if strings.HasPrefix(name, "run-") {
			fmt.Fprintf(&c, "  termination_grace_period = \"1s\"\n  back_off {\n    initial = \"1s\"\n    max = \"1s\"\n  }\n")
			fmt.Fprintf(&c, "  restart { command = [%q, %q, %q, %q] }\n%s", self, restartCommand, s.world.socket, s.path(name), probe("liveness", name))
		}
		fmt.Fprintf(&c, "%s}\n", probe("readiness", name))
	}
	return c.String()
}

// ServeHTTP receives a notice.
func (s *stage) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var n struct{ Name, Status string }
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		return // the engine was killed
	}
	s.noticeMu.Lock()
	defer s.noticeMu.Unlock()
	if n.Status == "firing" {
		s.told[n.Name]++
		if s.firstAt[n.Name].IsZero() {
			s.firstAt[n.Name] = time.Now()
		}
	} else {
		s.resolved[n.Name]++
	}
}

// awaitShared waits until the engines share all targets, and each shows all of them as ready.
func (s *stage) awaitShared() {
	s.t.Helper()
	s.await("the engines share all targets, and show them as ready", func() bool {
		owned := 0
		for _, p := range s.engines {
			var m struct {
				Owned   int
				Members []struct{}
			}
			var all struct{ Targets []struct{ Ready bool } }
			if p.get("/v1/cluster", &m) != nil || len(m.Members) != engines || p.get("/v1/targets", &all) != nil {
				return false
			}
			for _, target := range all.Targets {
				if !target.Ready {
					return false
				}
			}
			owned += m.Owned
		}
		return owned == s.restarted+s.watched
	})
}

// fail makes n targets fail until they are restarted, and for a while a few others that nobody restarts.
func (s *stage) fail(n int) {
	s.failBriefly(n)
	for range min(n/4, len(s.unseen)) {
		name := s.unseen[0]
		s.unseen = s.unseen[1:]
		s.fallen[name] = time.Now()
		s.world.infect(s.path(name), 0)
		s.healing.Go(func() {
			time.Sleep(watched)
			s.world.heal(s.path(name))
			s.noticeMu.Lock()
			defer s.noticeMu.Unlock()
			s.cured[name] = time.Now()
		})
	}
}

// failBriefly makes n targets fail until they are restarted.
func (s *stage) failBriefly(n int) {
	for range min(n, len(s.unfailed)) {
		at := s.random.IntN(len(s.unfailed))
		name := s.unfailed[at]
		s.unfailed = slices.Delete(s.unfailed, at, at+1)
		s.fallen[name] = time.Now()
		s.world.infect(s.path(name), 0)
	}
}

// outage stops etcd for a time, in which targets fail: a fifth of all together, and some that recover before it is back.
func (s *stage) outage(stop, start func(*node)) {
	away := fault{from: time.Now()}
	for _, n := range s.nodes {
		stop(n)
	}
	time.Sleep(s.silence) // the lease may or may not expire meanwhile
	s.fail(s.restarted / 5)
	time.Sleep(watched + time.Second)
	if s.isLong {
		time.Sleep(30 * time.Second)
		s.fail(s.wave / 2)
		time.Sleep(24 * time.Second)
	}
	for _, n := range s.nodes {
		start(n)
	}
	away.end()
	s.away = append(s.away, away)
	s.failBriefly(s.wave / 2)
}

// replaceData replaces the data of etcd while targets fail.
func (s *stage) replaceData(put func(dir string)) {
	n, away := s.nodes[0], fault{from: time.Now()}
	n.end(syscall.SIGKILL)
	if err := os.RemoveAll(n.dir); err != nil {
		s.t.Fatal(err)
	}
	put(n.dir)
	s.fail(s.wave)
	time.Sleep(3 * time.Second)
	n.start(s.t)
	away.end()
	s.away = append(s.away, away)
	s.fail(s.wave)
	time.Sleep(10 * time.Second)
	s.fail(s.wave)
}

// copyData copies the data of a node of etcd.
func copyData(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// isolate drops all packets from an engine to etcd and to targets, until heal is called.
func (s *stage) isolate(engine int) (heal func()) {
	_, port, _ := net.SplitHostPort(s.world.address)
	away := s.filter(engine, sent, received)
	lost := faulttest.Filter(s.t, fmt.Sprintf("chain output { type filter hook output priority 0;\nmeta skgid %d tcp dport %s drop\n}", groupOf(s.engines[engine].name), port))
	return func() { away(); lost() }
}

// command runs a command of sonde-fleet with the configuration of the engines.
func (s *stage) command(args ...string) {
	s.t.Helper()
	c := exec.Command(s.program, args...)
	c.Dir = s.dir
	c.Env = append(os.Environ(), "ENDPOINTS="+s.nodes[0].url())
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Errorf("%v: %v: %s", args, err, out)
	}
}

// end waits until all is well again, logs the figures of the scene, and reports those that miss the requirements.
func (s *stage) end(name string) {
	s.t.Helper()
	s.await("all targets are restarted", func() bool { return len(s.world.sick(s.path(""))) == 0 })
	s.healing.Wait()
	s.awaitShared()
	var acts []act
	s.await("no restart command runs", func() bool {
		ended, areMore := s.world.takeActs(s.path(""))
		acts = append(acts, ended...)
		return !areMore
	})
	took := s.judgeRestarts(acts)
	s.awaitNotices()
	after, missing, odd := s.judgeNotices()
	if len(took) == 0 || len(after) == 0 {
		s.t.Fatal("nothing was restarted, or told")
	}
	median, longest := took[len(took)/2], took[len(took)-1]
	s.t.Logf("%-16s restarts %3d, p50 %5.1f s, max %5.1f s; told %3d, p50 %5.1f s; not told: %d that had to be; told or resolved wrongly: %d", name, len(took), median.Seconds(), longest.Seconds(), len(after), after[len(after)/2].Seconds(), len(missing), len(odd))
	if len(odd) > 0 {
		s.t.Errorf("told or resolved several times, or not as often: %v", odd)
	}
	if s.isLong { // on a machine that does nothing else
		if median > maxMedian || longest > maxRestart {
			s.t.Errorf("restarts took %v (p50) and %v (max), at most %v and %v are allowed", median, longest, maxMedian, maxRestart)
		}
		if len(missing) > 0 {
			s.t.Errorf("must be told: %v", missing)
		}
	}
	if s.t.Failed() {
		s.t.Log(logsOf(s.dir))
	}
}

// judgeRestarts returns the sorted times from the failure of each target, or from the return of etcd, to its restart.
// It fails the test if a healthy target was restarted, or any target twice.
func (s *stage) judgeRestarts(acts []act) (took []time.Duration) {
	s.t.Helper()
	for _, a := range acts {
		name := strings.TrimPrefix(a.target, s.path(""))
		from, hasFailed := s.fallen[name]
		if !hasFailed || a.wasHealthy && a.before == nil {
			s.t.Errorf("a target was restarted that had never failed: %v", &a)
			continue
		}
		if !a.isCompleted || a.wasHealthy {
			continue // the command was killed, and run again: see TestRandomFaultsLeadToNoStaleRestart
		}
		s.noticeMu.Lock()
		s.cured[name] = a.ended
		s.noticeMu.Unlock()
		for _, away := range s.away {
			if away.from.Before(a.started) && from.Before(away.to) && from.After(away.from.Add(-detection)) {
				from = away.to
			}
		}
		took = append(took, max(0, a.started.Sub(from)))
	}
	slices.Sort(took)
	return took
}

// awaitNotices waits until no more notices arrive.
func (s *stage) awaitNotices() {
	s.t.Helper()
	count := func() (n int) {
		s.noticeMu.Lock()
		defer s.noticeMu.Unlock()
		for _, of := range []map[string]int{s.told, s.resolved} {
			for _, times := range of {
				n += times
			}
		}
		return n
	}
	last, since := count(), time.Now()
	s.await("no more notices are sent", func() bool {
		if n := count(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 6*time.Second
	})
}

// judgeNotices returns, sorted, how long it took until targets were reported; the targets that were not reported although they were
// unready long enough; and those that were reported or resolved more than once, or not equally often.
func (s *stage) judgeNotices() (after []time.Duration, missing, odd []string) {
	s.noticeMu.Lock()
	defer s.noticeMu.Unlock()
	for name, fallen := range s.fallen {
		if s.told[name] > 0 {
			after = append(after, s.firstAt[name].Sub(fallen))
		}
		sick := s.cured[name].Sub(fallen)
		line := fmt.Sprintf("%s (sick for %.1f s, told %d, resolved %d)", name, sick.Seconds(), s.told[name], s.resolved[name])
		switch {
		case s.told[name] == 1 && s.resolved[name] == 1:
		case s.told[name] != s.resolved[name] || s.told[name] > 1:
			odd = append(odd, line)
		case sick >= mustTell+detection:
			missing = append(missing, line)
		}
	}
	for name := range s.told {
		if _, hasFailed := s.fallen[name]; !hasFailed {
			odd = append(odd, name+" has never failed")
		}
	}
	slices.Sort(after)
	slices.Sort(missing)
	slices.Sort(odd)
	return after, missing, odd
}
