package browser

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sonde-probe/sonde/tests/etcdtest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// shared is the number of targets that the engines of a cluster share.
const shared = 40

// cluster is a set of engines that share targets over etcd; all are processes.
type cluster struct {
	t       *testing.T
	dir     string
	program string
	engines map[string]*exec.Cmd
}

// newCluster starts etcd, and prepares the program and a configuration with targets that are ready.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	tier.Needs(t, "etcd", "chromium")
	c := &cluster{t: t, dir: t.TempDir(), program: program.BuildOf(t, "cmd/engine/fleet", "."), engines: map[string]*exec.Cmd{}}
	client, peer := "http://"+gatewaytest.FreeAddress(t), "http://"+gatewaytest.FreeAddress(t)
	c.run("etcd", etcdtest.Single(client, peer))
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(web.Close)
	host, port, _ := strings.Cut(web.Listener.Addr().String(), ":")
	c.write("config.hcl", fmt.Sprintf(`
		cluster {
		  endpoints = [%q]
		}
		defaults {
		  timeout           = "30s"
		  period            = "30s"
		  starting_period   = "1s"
		  failure_threshold = 5
		}
		target "shop/web" {
		  for_each = toset([for i in range(%d) : tostring(i)])
		  address  = %q
		  probe "readiness" {
		    http { port = %s }
		  }
		}
	`, client, shared, host, port))
	return c
}

func (c *cluster) write(file, text string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, file), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// run starts a process that is killed when the test ends. Its output is logged if the test fails.
func (c *cluster) run(name string, process *exec.Cmd) *exec.Cmd {
	c.t.Helper()
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	process.Dir, process.Stdout, process.Stderr = c.dir, log, log
	if err := process.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGKILL) // it may have been killed
		_ = process.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && c.t.Failed() {
			c.t.Logf("%s: %s", name, text[max(0, len(text)-2000):])
		}
	})
	return process
}

// start starts an engine.
func (c *cluster) start(name string) {
	c.t.Helper()
	c.engines[name] = c.run(name, exec.Command(c.program, "run", "config.hcl", "--cluster-name", name, "--listen", "127.0.0.1:0", "--address-file", name+".address"))
}

// address returns the address of an engine's API, once it listens.
func (c *cluster) address(name string) string {
	c.t.Helper()
	var address []byte
	testsync.UntilWithin(c.t, limit, name+" listens", func() bool {
		address, _ = os.ReadFile(filepath.Join(c.dir, name+".address")) // it does not exist at first
		return len(address) > 0
	})
	return strings.TrimSpace(string(address))
}

// owners returns the owners of targets according to an engine's sonde status, and the whole output.
func (c *cluster) owners(engine string) (byTarget map[string]string, text string) {
	c.t.Helper()
	output, err := exec.Command(c.program, "status", "--address", c.address(engine)).CombinedOutput()
	if err != nil {
		c.t.Fatalf("sonde status: %v: %s", err, output)
	}
	byTarget = map[string]string{}
	for line := range strings.Lines(string(output)) {
		if words := strings.Fields(line); len(words) > 1 && strings.HasPrefix(words[0], "shop/web[") {
			byTarget[words[0]] = words[1]
		}
	}
	return byTarget, string(output)
}

// ownersOnPage is an expression for the owners of all targets in the list, by name; "" for a target that is not ready, or is shown
// without an owner or an age.
const ownersOnPage = `Object.fromEntries(` + rows + `.map((r) => [r.querySelector("th a").textContent,
	r.querySelector(".state").textContent === "ready" && r.querySelector("time").textContent && (r.querySelector("th").textContent.match(/by (engine-\d)$/) || [])[1] || ""]))`

// owned returns an expression that is true if all targets are shown with owners, and the number of different owners is engines.
func owned(engines int) string {
	return fmt.Sprintf(`((owners) => owners.length === %d && owners.every(Boolean) && new Set(owners).size === %d)(Object.values(%s))`, shared, engines, ownersOnPage)
}

// members returns an expression that is true if the page shows that number of engines, each with its share of the shards.
func members(engines int) string {
	shares := map[int]string{4: `9\d\d|1,[01]\d\d`, 3: `1,[2345]\d\d`}
	return fmt.Sprintf(`((all) => all.length === %d && all.every((e) => /^engine-\d (%s) of 4,096 shards/.test(e.innerText.replace(/\s+/g, " "))))([...document.querySelectorAll("#cluster li")])`,
		engines, shares[engines])
}

// fact returns an expression for the text under a title on the page of a target.
func fact(title string) string {
	return fmt.Sprintf(`([...document.querySelectorAll("#facts dt")].find((e) => e.textContent === %q) || document.body).nextElementSibling?.textContent`, title)
}

// TestOneEngineShowsTheTargetsOfAll has four engines share targets, and checks the page of one of them. Another one is killed: page
// and status then show the new owners of its targets, and all targets are ready.
func TestOneEngineShowsTheTargetsOfAll(t *testing.T) {
	c := newCluster(t)
	for i := range 4 {
		c.start(fmt.Sprintf("engine-%d", i+1))
	}
	s := &site{t: t, url: "http://" + c.address("engine-1")}
	b := s.open(1440)
	b.until(tileSays("ready", fmt.Sprint(shared)))
	b.until(owned(4))
	b.until(members(4))
	lost := ""
	for target, owner := range eval[map[string]string](b, ownersOnPage) {
		if owner == "engine-4" {
			lost = target
		}
	}
	b.run(chromedp.Evaluate(row(lost)+`.querySelector("th a").click()`, nil))
	b.until(fact("Probed by") + ` === "engine-4" && Boolean(` + fact("Heard of") + `)`)
	b.run(chromedp.KeyEvent("\u001b"))
	b.until(`!document.querySelector("#list").hidden`)

	if err := c.engines["engine-4"].Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.until(owned(3))
	b.until(members(3))
	b.until(tileSays("ready", fmt.Sprint(shared)))
	onPage := eval[map[string]string](b, ownersOnPage)
	if owner := onPage[lost]; owner == "engine-4" || owner == "" {
		t.Errorf("%s is probed by %q", lost, owner)
	}
	for _, engine := range []string{"engine-1", "engine-2"} {
		owners, text := c.owners(engine)
		if !maps.Equal(owners, onPage) || !strings.Contains(text, "cluster: "+engine+" of 3 engines") {
			t.Errorf("the owners are %v by the page of engine-1, and %v by sonde status of %s:\n%s", onPage, owners, engine, text)
		}
	}
}
