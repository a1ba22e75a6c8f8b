package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/fleet/shard"
	"github.com/sonde-probe/sonde/tests/faulttest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// Behind the network of a city there are hosts with targets. Each target has a restart command.
const (
	hosts   = 6
	perHost = 15
)

// cityFleet is the number of the fleet of a city.
const cityFleet = 70

// hostsCommand is the first argument of a process of this program that runs the hosts of a city, in its own network.
const hostsCommand = "hosts"

func hostAddress(host int) string { return fmt.Sprint("10.77.0.", 1+host) }

// engineAddress returns the source address of an engine's probes.
func engineAddress(engine int) string { return fmt.Sprint("10.77.0.", 101+engine) }

func targetOf(host, n int) string { return fmt.Sprintf("h%d-%d", host, n) }

// serveHosts accepts connections at the addresses of all hosts, and relays them to a socket, to the end of its standard input.
func serveHosts(args []string) error {
	var ready [1]byte
	if _, err := os.Stdin.Read(ready[:]); err != nil { // the addresses exist now
		return err
	}
	for host := range hosts {
		l, err := net.Listen("tcp", hostAddress(host)+":80")
		if err != nil {
			return err
		}
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go relay(c, args[0])
			}
		}()
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// relay relays a connection to a socket.
func relay(c net.Conn, socket string) {
	defer c.Close()
	to, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, c); to.Close() }() // each direction ends the other
	_, _ = io.Copy(c, to)
}

// startHosts starts the hosts, whose targets belong to a world, and the network that connects them.
func startHosts(t *testing.T, w *world) {
	t.Helper()
	tier.Needs(t, "ip", "nsenter")
	socket := filepath.Join(testsync.SocketDir(t), "hosts")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w}
	go func() { _ = server.Serve(l) }() // until it is closed
	t.Cleanup(func() { server.Close() })
	c := exec.Command("/proc/self/exe", hostsCommand, socket)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = c.Wait() })
	run := func(line string) {
		t.Helper()
		args := strings.Fields(line)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
	}
	pid := strconv.Itoa(c.Process.Pid)
	run("ip link add city type veth peer name eth0 netns " + pid)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "city").Run() }) // it may have been removed with the hosts
	for engine := range engines {
		run("ip addr add " + engineAddress(engine) + "/24 dev city")
	}
	run("ip link set city up")
	for host := range hosts {
		run("nsenter -t " + pid + " -n ip addr add " + hostAddress(host) + "/24 dev eth0")
	}
	run("nsenter -t " + pid + " -n ip link set eth0 up")
	fmt.Fprint(in, ".")
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal("the hosts do not listen: ", err)
	}
}

// city is a fleet whose engines reach their targets over a network that may be cut.
type city struct {
	*fleet
	notices noticed
}

// noticed counts the notices that a receiver gets.
type noticed struct {
	noticedMu sync.Mutex // guards firing
	firing    map[string]int
}

// ServeHTTP receives a notice.
func (n *noticed) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var notice struct{ Name, Status string }
	if json.NewDecoder(r.Body).Decode(&notice) != nil || notice.Status != "firing" {
		return
	}
	n.noticedMu.Lock()
	defer n.noticedMu.Unlock()
	n.firing[notice.Name]++
}

// startCity starts the engines of a city, and waits until they show all targets as ready.
func startCity(t *testing.T, program string) *city {
	t.Helper()
	w := newWorld(t)
	startHosts(t, w)
	nodes := startEtcd(t, 1, 2300)
	c := &city{fleet: &fleet{
		t: t, program: program, dir: t.TempDir(), number: cityFleet, random: rand.New(rand.NewPCG(*first, 1)), world: w, nodes: nodes, client: connect(t, nodes),
	}}
	c.notices.firing = map[string]int{}
	receiver, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: &c.notices}
	go func() { _ = server.Serve(receiver) }() // until it is closed
	t.Cleanup(func() { server.Close() })
	c.observer = observe(t, c.client, c.prefix())
	var config strings.Builder
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&config, `cluster {
  endpoints = split(" ", env("ENDPOINTS"))
  prefix    = %q
}

defaults {
  period = "1s"
}

notify "all" {
  webhook { url = "http://%v/" }
}
`, c.prefix(), receiver.Addr())
	for host := range hosts {
		for n := range perHost {
			name := targetOf(host, n)
			w.add(c.path(name), func() string { return c.observer.instance(name) })
			fmt.Fprintf(&config, `
target %q {
  address = %q

  restart { command = [%q, %q, %q, %q] }

  probe "readiness" {
    http {
      port           = 80
      path           = "/%s"
      source_address = env("SOURCE")
    }
  }

  probe "liveness" {
    http {
      port           = 80
      path           = "/%s"
      source_address = env("SOURCE")
    }
  }
}
`, name, hostAddress(host), self, restartCommand, w.socket, c.path(name), c.path(name), c.path(name))
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, "config.hcl"), []byte(config.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range engines {
		c.start(i, "SOURCE="+engineAddress(i))
	}
	c.await("the engines share all targets", func() bool { return c.observer.isDivided(engines) })
	c.await("each engine shows all targets as ready", func() bool { return len(c.unready()) == 0 })
	return c
}

// unready returns the targets that an engine does not show as ready, with the engine's name.
func (c *city) unready() (all []string) {
	shown := c.ready()
	for host := range hosts {
		for n := range perHost {
			for i := range engines {
				if !strings.Contains(" "+shown[i], " "+targetOf(host, n)+" ") {
					all = append(all, fmt.Sprintf("%s at engine-%d", targetOf(host, n), i))
				}
			}
		}
	}
	return all
}

// cut applies rules to the packets between the first engine and a number of hosts, until heal is called.
func (c *city) cut(hosts int, rules ...string) (heal func()) {
	var sent, received strings.Builder
	for host := range hosts {
		for _, rule := range rules {
			chain, line := &sent, fmt.Sprintf("ip saddr %s ip daddr %s %s\n", engineAddress(0), hostAddress(host), strings.TrimPrefix(rule, "received "))
			if strings.HasPrefix(rule, "received ") {
				chain, line = &received, fmt.Sprintf("ip daddr %s ip saddr %s %s\n", engineAddress(0), hostAddress(host), strings.TrimPrefix(rule, "received "))
			}
			chain.WriteString(line)
		}
	}
	return faulttest.Filter(c.t, "chain output { type filter hook output priority 0;\n"+sent.String()+"}\nchain input { type filter hook input priority 0;\n"+received.String()+"}")
}

// owned returns a target at a host that the first engine owns.
func (c *city) owned(host int) string {
	c.observer.seenMu.Lock()
	defer c.observer.seenMu.Unlock()
	for n := range perHost {
		if c.observer.owners[shard.Of(targetOf(host, n))] == "engine-0" {
			return targetOf(host, n)
		}
	}
	c.t.Fatalf("the first engine owns no target of host %d", host)
	return ""
}

// die makes targets silent, and returns how long it took until the last of them was restarted.
func (c *city) die(targets ...string) time.Duration {
	c.t.Helper()
	began := time.Now()
	for _, name := range targets {
		c.world.mute(c.path(name))
	}
	c.await("what is dead is restarted", func() bool { return len(c.world.sick(c.path(""))) == 0 })
	return time.Since(began)
}

// watch checks the targets that all engines show for a time, and returns the healthy targets that any of them did not show as
// ready.
func (c *city) watch(d time.Duration, dead map[string]bool) (left map[string]bool) {
	left = map[string]bool{}
	for began := time.Now(); time.Since(began) < d; time.Sleep(100 * time.Millisecond) {
		for _, shown := range c.unready() {
			if name, _, _ := strings.Cut(shown, " "); !dead[name] {
				left[shown] = true
			}
		}
	}
	return left
}

func TestAnEngineThatIsCutOffFromSomeHostsFailsNoTarget(t *testing.T) {
	needRoot(t)
	t.Parallel()
	c := startCity(t, build(t))
	usual := c.die(c.owned(0), c.owned(5))
	t.Logf("usually a death takes %v", usual.Round(time.Millisecond))
	c.await("each engine shows all targets as ready", func() bool { return len(c.unready()) == 0 })
	c.world.takeActs(c.path(""))
	clear(c.notices.firing)
	const loss = "numgen random mod 100 < 30 drop"
	for _, test := range []struct {
		name  string
		hosts int
		rules []string
		isAll bool // only played in long runs
	}{
		{"1 of 6 hosts", 1, []string{"drop"}, true},
		{"3 of 6 hosts", 3, []string{"drop"}, false},
		{"5 of 6 hosts", 5, []string{"drop"}, true},
		{"what 5 of 6 hosts send", 5, []string{"received drop"}, true},
		{"30 percent of packets", 6, []string{loss, "received " + loss}, true},
	} {
		if test.isAll && !tier.IsLong() {
			continue
		}
		dead := map[string]bool{}
		heal := c.cut(test.hosts, test.rules...)
		left := c.watch(tier.Pick(0, 12*time.Second, time.Minute), dead)
		victims := []string{c.owned(0), c.owned(5)} // one on each side
		for _, name := range victims {
			dead[name] = true
		}
		took := c.die(victims...)
		for shown := range c.watch(tier.Pick(0, 3*time.Second, 20*time.Second), dead) {
			left[shown] = true
		}
		heal()
		if tier.IsLong() && took > 2*usual+time.Second {
			t.Errorf("%s: a death took %v, usually %v", test.name, took, usual)
		}
		acts, _ := c.world.takeActs(c.path(""))
		wrong := 0
		for _, a := range acts {
			if a.wasHealthy && a.before == nil {
				wrong++
			}
		}
		c.notices.noticedMu.Lock()
		told := 0
		for name := range c.notices.firing {
			if !dead[name] {
				told++
			}
		}
		clear(c.notices.firing)
		c.notices.noticedMu.Unlock()
		t.Logf("%s: %d healthy targets not shown as ready, %d restarted, %d told; a death took %v", test.name, len(left), wrong, told, took.Round(time.Millisecond))
		if len(left)+wrong+told > 0 {
			t.Errorf("%s: not shown as ready: %v\n%s", test.name, left, logsOf(c.dir))
		}
		c.await("each engine shows all targets as ready", func() bool { return len(c.unready()) == 0 })
	}
}
