package container

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// group is a control group whose CPU time is counted.
type group string

// newGroup creates a group, or skips the test if cgroup v1 is not mounted.
func newGroup(t *testing.T, name string) group {
	t.Helper()
	g := group(fmt.Sprintf("sonde-%s-%d", name, os.Getpid()))
	if err := os.Mkdir(g.path(""), 0o755); err != nil {
		t.Skip("cgroup v1 with cpuacct is needed: ", err)
	}
	t.Cleanup(func() { // its processes have just ended
		testsync.Until(t, "the removal of a control group", func() bool {
			children, _ := filepath.Glob(g.path("*/cgroup.procs"))
			for _, c := range children {
				_ = os.Remove(filepath.Dir(c))
			}
			return os.Remove(g.path("")) == nil
		})
	})
	return g
}

func (g group) path(file string) string {
	return filepath.Join("/sys/fs/cgroup/cpuacct", string(g), file)
}

// used returns the CPU time of the group so far.
func (g group) used(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(g.path("cpuacct.usage"))
	n, wrong := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || wrong != nil {
		t.Fatal(err, wrong)
	}
	return time.Duration(n)
}

// costVariable has the socket, the handler, the period and the ports for an engine in a process of its own.
const costVariable = "SONDE_TEST_COST"

func TestEngineWhoseCostIsCounted(t *testing.T) {
	fields := strings.Fields(os.Getenv(costVariable))
	if len(fields) == 0 {
		t.Skip("is run by TestTheCostBesideThatOfAHealthcheck")
	}
	w := newWorld(t, &dockertest.Runtime{Socket: fields[0]})
	period, _ := time.ParseDuration(fields[2])
	units := map[string]restart.Unit{}
	for _, port := range fields[3:] {
		name := "web-" + port
		units[name] = w.attach(name)
		r := probe.Rule{Period: period, Timeout: period, FailureThreshold: 3}
		if fields[1] == "exec" {
			w.exec(name, r, "/subject", "get", "127.0.0.1:"+port)
			continue
		}
		h, err := httpprobe.New(httpprobe.Config{Path: "/healthz", Port: port})
		if err != nil {
			t.Fatal(err)
		}
		w.Probes[probe.ID{Target: name, Kind: probe.Liveness}] = probe.Probe{Rule: r, Handler: h, HandlerName: "http"}
	}
	w.Run(units, nil)
	select {}
}

var counts = flag.Bool("costs", false, "compare the cost of an attempt with that of a HEALTHCHECK, for five minutes")

// The same containers are checked by HTTP from outside, by commands inside, and by their HEALTHCHECK, one after
// another. The cost is the CPU time of the daemons, shims, containers and checks, less that of the same containers
// without checks.
func TestTheCostBesideThatOfAHealthcheck(t *testing.T) {
	if !*counts {
		t.Skip("needs -costs, and a machine that does nothing else")
	}
	const containers, length, period, want = 20, time.Minute, 5 * time.Second, 50.0
	daemon, own := newGroup(t, "daemon"), newGroup(t, "engine")
	r := dockertest.DockerIn(t, string(daemon))
	var ports []string
	start := func(health string) {
		for i := range containers {
			if health != "" {
				r.Post(t, "/containers/web-"+ports[i]+"/stop?t=0", "")
			} else {
				_, port, _ := net.SplitHostPort(gatewaytest.FreeAddress(t))
				ports = append(ports, port)
			}
			address := "127.0.0.1:" + ports[i]
			body := fmt.Sprintf(`{"Image":%q,"Cmd":["serve",%q],"HostConfig":{"NetworkMode":"host"}%s}`, dockertest.Image, address, strings.ReplaceAll(health, "ADDRESS", address))
			name := "web" + strings.Repeat("-checked", min(1, len(health))) + "-" + ports[i]
			r.Post(t, "/containers/create?name="+name, body)
			r.Post(t, "/containers/"+name+"/start", "")
		}
	}
	count := func() (ofDaemon, ofEngine time.Duration) { // CPU time per check
		time.Sleep(10 * time.Second) // exclude the start
		d, e := daemon.used(t), own.used(t)
		time.Sleep(length)
		const checks = containers * length / period
		return (daemon.used(t) - d) / checks, (own.used(t) - e) / checks
	}
	start("")
	idle, _ := count()
	cost := func(handler string) time.Duration {
		engine := exec.Command("sh", "-c", `echo $$ >"$0" && exec "$@"`, own.path("cgroup.procs"), os.Args[0], "-test.run=^TestEngineWhoseCostIsCounted$")
		engine.Env = append(os.Environ(), costVariable+"="+strings.Join(append([]string{r.Socket, handler, period.String()}, ports...), " "))
		if err := engine.Start(); err != nil {
			t.Fatal(err)
		}
		d, e := count()
		_ = engine.Process.Kill()
		_ = engine.Wait()
		t.Logf("%s: the engine %v, the daemon and containers %v more than without checks, a check", handler, e, d-idle)
		return e + max(d-idle, 0)
	}
	byHTTP, byExec := cost("http"), cost("exec")
	start(fmt.Sprintf(`,"Healthcheck":{"Test":["CMD","/subject","get","ADDRESS"],"Interval":%d,"Timeout":%d}`, period, period))
	d, _ := count()
	byHealth := d - idle
	t.Logf("%d containers, each %v: HEALTHCHECK %v, exec by the API %v, http %v a check: 1 to %.0f", containers, period, byHealth, byExec, byHTTP, float64(byHealth)/float64(byHTTP))
	if float64(byHealth) < want*float64(byHTTP) {
		t.Errorf("a HEALTHCHECK costs %v, an attempt by http %v", byHealth, byHTTP)
	}
}
