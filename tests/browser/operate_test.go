package browser

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sonde-probe/sonde/tests/program"
	"github.com/sonde-probe/sonde/tests/tier"
)

// startOperated starts an engine with one process, and opens the page of its target at the address that way returns.
func startOperated(t *testing.T, token string, way func(c *cluster) (address string)) *tab {
	t.Helper()
	tier.Needs(t, "chromium")
	c := &cluster{t: t, dir: t.TempDir(), program: program.BuildOf(t, "cmd/engine", ".")}
	settings := ""
	if token != "" {
		c.write("token", token)
		settings = `engine { token_file = "token" }`
	}
	c.write("config.hcl", settings+`
		target "shop/web" {
		  process {
		    command = ["sleep", "1000"]
		  }
		}
	`)
	c.run("engine", exec.Command(c.program, "run", "config.hcl", "--listen", "127.0.0.1:0", "--address-file", "engine.address"))
	s := &site{t: t, url: "http://" + way(c)}
	b := s.open(1440)
	if token != "" {
		b.run(chromedp.WaitVisible("#login", chromedp.ByQuery), chromedp.SendKeys("#token", token+"\r", chromedp.ByQuery))
	}
	b.until(tileSays("ready", "1"))
	b.run(chromedp.Evaluate(row("shop/web")+`.querySelector("th a").click()`, nil))
	b.until(`document.querySelector("#target-name").textContent === "shop/web" && document.querySelector("#target-state").innerText === "ready"`)
	return b
}

func overTCP(c *cluster) string { return c.address("engine") }

// overSocket forwards connections to the control socket, as ssh -L does.
func overSocket(c *cluster) string {
	var sockets []string
	for _, parent := range []string{"/run", fmt.Sprintf("/run/user/%d", os.Getuid()), os.Getenv("XDG_RUNTIME_DIR")} {
		found, _ := filepath.Glob(parent + "/sonde-engine-" + c.address("engine") + "@*/control.sock")
		sockets = append(sockets, found...)
	}
	if len(sockets) == 0 {
		c.t.Fatal("there is no control socket")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", sockets[0])
			if err != nil {
				from.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, from); to.Close() }()
			go func() { _, _ = io.Copy(from, to); from.Close() }()
		}
	}()
	return listener.Addr().String()
}

// click clicks a button wherever it is: the page may move it meanwhile.
func (b *tab) click(id string) {
	b.t.Helper()
	b.run(chromedp.Evaluate(fmt.Sprintf(`document.getElementById(%q).click()`, id), nil))
}

func TestTheOperatorRestartsAndPausesOnThePage(t *testing.T) {
	for name, of := range map[string]struct {
		token string
		way   func(c *cluster) string
	}{
		"with the token":               {"0123456789abcdef", overTCP},
		"over the engine's own socket": {"", overSocket},
	} {
		t.Run(name, func(t *testing.T) {
			b := startOperated(t, of.token, of.way)
			b.until(`!document.querySelector("#operate").hidden && document.querySelector("#hint").hidden`)
			instance := eval[string](b, fact("Instance"))
			for _, id := range []string{"restart", "restart-no", "restart"} {
				b.click(id)
			}
			if asked := eval[string](b, `document.querySelector("#restart-text").textContent`); asked != "Restart shop/web?" {
				t.Errorf("the page asks %q", asked)
			}
			b.click("restart-yes")
			b.until(`document.querySelector("#operated").textContent === "Restarting."`)
			b.until(fact("Restarts") + ` === "1" && ` + fact("Instance") + fmt.Sprintf(" !== %q", instance))

			b.run(chromedp.SendKeys("#pause-reason", "new disk\r", chromedp.ByQuery))
			b.until(`document.querySelector("#target-state").innerText === "paused" && document.querySelector("#pause-form").hidden`)
			b.until(fact("Paused") + `.includes("new disk")`)
			b.click("unpause")
			b.until(`document.querySelector("#target-state").innerText === "ready" && !document.querySelector("#pause-form").hidden`)
		})
	}
}

func TestWithoutATokenThePageHasAHint(t *testing.T) {
	b := startOperated(t, "", overTCP)
	b.until(`document.querySelector("#operate").hidden && !document.querySelector("#hint").hidden`)
}
