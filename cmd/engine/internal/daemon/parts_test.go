package daemon

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	beatprobe "github.com/sonde-probe/sonde/builtin/beat"
	"github.com/sonde-probe/sonde/cmd/engine/internal/cli"
	"github.com/sonde-probe/sonde/cmd/engine/internal/handlers"
	"github.com/sonde-probe/sonde/config"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart/process"
)

// allParts is a configuration that uses every part, in two versions: VERSION is replaced by 1 or 2.
const allParts = `
engine {
  listen = ""
}

target "web" {
  address = "127.0.0.VERSION"
  labels  = { version = "VERSION" }

  probe "readiness" {
    tcp { port = 9 }
  }
}

target "only-in-VERSION" {
  address = "127.0.0.1"

  probe "readiness" {
    tcp { port = 9 }
  }
}

group "shop" {
  members   = ["web", "only-in-VERSION"]
  min_ready = VERSION
}

gateway "balancer-VERSION" {
  group = "shop"

  agent {
    listen = "127.0.0.1:9"
  }
}

notify "chat-VERSION" {
  labels = { version = "VERSION" }

  webhook {
    url = "https://localhost:9/VERSION"
    tls { ca_file = "DIR/ca.pem" }
  }
}

maintenance "patches" {
  members  = ["web"]
  cron     = "30 2 VERSION * *"
  duration = "45m"
}

probe_module "connect" {
  allow = ["10.VERSION.0.0/16"]
  tcp {}
}
`

// A reload is applied as a whole or not at all, whichever part rejects it. The test compares the output of the API and the
// metrics.
func TestAConfigurationThatOnePartRefusesIsInUseInNone(t *testing.T) {
	for part, spoil := range map[string]func(c *config.Config, dir string){
		"targets: invalid probe": func(c *config.Config, _ string) {
			id := probe.ID{Target: "web", Kind: probe.Readiness}
			p := c.Set[id]
			p.Rule.Period = -1
			c.Set[id] = p
		},
		"targets: cycle": func(c *config.Config, _ string) {
			t := c.Targets["web"]
			t.StartAfter = []string{"web"}
			c.Targets["web"] = t
		},
		"maintenance: time zone": func(c *config.Config, _ string) {
			m := c.Maintenances["patches"]
			m.Timezone = "Nowhere/None"
			c.Maintenances["patches"] = m
		},
		"groups: invalid name":    func(c *config.Config, _ string) { c.Groups[strings.Repeat("x", 1000)] = c.Groups["shop"] },
		"gateways: unknown group": func(c *config.Config, _ string) { delete(c.Groups, "shop") },
		// Removed right after it was read.
		"notifiers: certificate":   func(_ *config.Config, dir string) { _ = os.Remove(filepath.Join(dir, "ca.pem")) },
		"probe modules: allowance": func(c *config.Config, _ string) { c.ProbeModules["connect"].Allow[0] = "10.0.0.0/99" },
	} {
		t.Run(part, func(t *testing.T) {
			dir := t.TempDir()
			writeCA(t, filepath.Join(dir, "ca.pem"))
			d, first := inVersion(t, dir, "1")
			if err := d.prepare(first); err != nil {
				t.Fatal(err)
			}
			before := views(t, d)
			_, next := inVersion(t, dir, "2")
			spoil(next, dir)
			name, _, _ := strings.Cut(part, ":")
			if p := d.planner().plan(loadResult{config: next}); p.Error == nil || name != "targets" && !strings.HasPrefix(p.Error.Message, name+": ") {
				t.Errorf("the plan has the error %+v", p.Error)
			}
			if _, err := d.apply(next, anyEffect); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
				t.Fatalf("the error is %v", err)
			}
			after := views(t, d)
			for path, was := range before {
				if after[path] != was {
					t.Errorf("%s was\n%s\nand is\n%s", path, was, after[path])
				}
			}
			writeCA(t, filepath.Join(dir, "ca.pem"))
			_, next = inVersion(t, dir, "2")
			if _, err := d.apply(next, anyEffect); err != nil {
				t.Fatal(err)
			}
			for path, is := range views(t, d) {
				if path != "/v1/stats" && is == before[path] { // the number of probes is the same
					t.Errorf("%s is the same after a configuration that can be used:\n%s", path, is)
				}
			}
		})
	}
}

// An engine that starts during a maintenance never shows its targets as not under maintenance.
func TestAStartDuringAMaintenanceIsNotInTheHistory(t *testing.T) {
	dir := t.TempDir()
	writeCA(t, filepath.Join(dir, "ca.pem"))
	d, c := inVersion(t, dir, "1")
	m := c.Maintenances["patches"]
	m.Cron = "* * * * *"
	c.Maintenances["patches"] = m
	if err := d.prepare(c); err != nil {
		t.Fatal(err)
	}
	if why := d.engine.Admin().Suppressed("web"); why != probe.ReasonMaintenance {
		t.Errorf("nothing is done about web for the reason %q", why)
	}
	if past := d.engine.Records().History("web"); len(past) > 0 {
		t.Errorf("the history has %+v", past)
	}
}

// The first response of a started engine contains all its targets.
func TestTheFirstAnswerHasAllTargets(t *testing.T) {
	dir := t.TempDir()
	writeCA(t, filepath.Join(dir, "ca.pem"))
	d, c := inVersion(t, dir, "1")
	c.Targets["worker"] = config.Target{Driver: process.Config{Command: []string{"sleep", "600"}}}
	if err := d.prepare(c); err != nil {
		t.Fatal(err)
	}
	for name := range c.Targets {
		if _, known := d.engine.Target(name); !known {
			t.Errorf("the engine does not have %s before it runs", name)
		}
	}
}

// inVersion returns a daemon, and a version of allParts for it.
func inVersion(t *testing.T, dir, version string) (*daemon, *config.Config) {
	t.Helper()
	d := &daemon{parts: parts{beats: beatprobe.NewRegistry()}, flags: &flags{}, log: slog.New(slog.DiscardHandler), level: &slog.LevelVar{}, queue: cli.NewLogQueue(io.Discard)}
	t.Cleanup(func() { d.queue.Close(time.Minute) })
	p := handlers.NewPlugins(t.Context(), handlers.WaitForAll, func(config.Engine) *slog.Logger { return d.log })
	d.plugins.Store(p)
	text := strings.NewReplacer("VERSION", version, "DIR", filepath.ToSlash(dir)).Replace(allParts)
	path := filepath.Join(dir, "sonde.hcl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, diags := d.flags.load([]string{path}, nil, nil, p)
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return d, c
}

// changing matches values that change even if nothing happens.
var changing = regexp.MustCompile(`(?m)^(# .*|(go|process|promhttp)_.*|sonde_(loop_busy|health|scrape).*)\n|"(next|at|since|now|uptime[A-Za-z]*)": ?[^,}\n]*`)

// views returns the responses of the API and the metrics, by path.
func views(t *testing.T, d *daemon) map[string]string {
	t.Helper()
	api, err := api.New(d.apiConfig())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, path := range []string{"/v1/targets", "/v1/targets/web", "/v1/groups", "/v1/gateways", "/v1/notifiers", "/v1/maintenance", "/v1/stats", "/metrics"} {
		r := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.Host = "localhost"
		api.ServeHTTP(r, request)
		if r.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, r.Code, r.Body)
		}
		all[path] = changing.ReplaceAllString(r.Body.String(), "")
	}
	return all
}

// writeCA writes a new certificate.
func writeCA(t *testing.T, path string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
