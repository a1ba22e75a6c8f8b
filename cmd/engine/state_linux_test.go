package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sonde-probe/sonde/agent/store"
	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

var kills = tier.Flag("kills", 1, 3, 20, "how often TestKillsOfTheEngineChangeNoVerdict kills an engine")

const (
	upTargets      = 200 // are ready
	downTargets    = 20  // stop being ready in the second life of the engine
	serviceTargets = 20  // are ready, and would be restarted by a command
)

// stateConfig has thresholds of several attempts, so that an engine that has lost its state is detected. PORT is replaced by
// the port of a server.
const stateConfig = `
engine {
  listen = "127.0.0.1:0"
  state  = "sonde.state"
}
defaults {
  period            = "500ms"
  timeout           = "10s"
  failure_threshold = 2
}
target "up" {
  for_each = toset([for n in range(%[2]d) : tostring(n)])
  address  = "127.0.0.1"
  probe "readiness" {
    http { port = %[1]s }
    success_threshold = 3
  }
  probe "liveness" {
    tcp { port = %[1]s }
  }
}
target "down" {
  for_each = toset([for n in range(%[3]d) : tostring(n)])
  address  = "127.0.0.1"
  probe "readiness" {
    http {
      port = %[1]s
      path = "/down"
    }
    success_threshold = 3
  }
}
target "service" {
  for_each = toset([for n in range(%[4]d) : tostring(n)])
  address  = "127.0.0.1"
  restart { command = ["touch", "restarted"] }
  probe "startup" {
    http { port = %[1]s }
  }
  probe "readiness" {
    http { port = %[1]s }
    success_threshold = 3
  }
  probe "liveness" {
    http { port = %[1]s }
  }
}
`

// lives is an engine that is killed and restarted with the same targets.
type lives struct {
	*testing.T
	dir     string
	process *exec.Cmd
	log     *testsync.Buffer
	client  api.Client
}

func (l *lives) path(name string) string { return filepath.Join(l.dir, name) }

// start starts the engine, and returns when its API responds.
func (l *lives) start() {
	l.Helper()
	_ = os.Remove(l.path("address"))
	l.log = &testsync.Buffer{}
	l.process = exec.Command("sonde", "run", "--address-file", "address", "--log-format", "text")
	l.process.Dir, l.process.Env = l.dir, environ()
	l.process.Stdout, l.process.Stderr = l.log, l.log
	if err := l.process.Start(); err != nil {
		l.Fatal(err)
	}
	testsync.Until(l, "the engine to listen", func() bool {
		b, _ := os.ReadFile(l.path("address"))
		l.client.Base = "http://" + strings.TrimSpace(string(b))
		return len(b) > 0
	})
}

func (l *lives) kill() {
	_ = l.process.Process.Kill()
	_ = l.process.Wait()
}

// targets returns the targets by for_each name, without the key.
func (l *lives) targets() map[string][]api.Target {
	l.Helper()
	page, err := l.client.Targets(context.Background(), api.Query{Probes: true})
	if err != nil {
		l.Fatalf("%v; log:\n%s", err, l.log)
	}
	byName := map[string][]api.Target{}
	for _, t := range page.Targets {
		name, _, _ := strings.Cut(t.Name, "[")
		byName[name] = append(byName[name], t)
	}
	return byName
}

// restored returns the state that an engine would restore from the current state file.
func (l *lives) restored() store.Restored {
	l.Helper()
	b, err := os.ReadFile(l.path("sonde.state"))
	if err == nil {
		err = os.WriteFile(l.path("copy"), b, 0o600)
	}
	if err != nil {
		l.Fatal(err)
	}
	s, err := store.Open(store.Config{Path: l.path("copy")})
	if err != nil {
		l.Fatal(err)
	}
	restored := s.Restored()
	if err := s.Close(); err != nil {
		l.Fatal(err)
	}
	return restored
}

// stored returns how many readiness probes of targets with a name have a verdict in the state file.
func (l *lives) stored(name string, v probe.Verdict) (n int) {
	l.Helper()
	for id, m := range l.restored().Memories {
		if strings.HasPrefix(id.Target, name) && id.Kind == probe.Readiness && m.State.Verdict == v {
			n++
		}
	}
	return n
}

// unready returns the number of targets that are not ready.
func unready(targets []api.Target) (n int) {
	for _, t := range targets {
		if !t.Ready {
			n++
		}
	}
	return n
}

// attempted reports whether each readiness probe was attempted since the engine started.
func attempted(targets map[string][]api.Target) bool {
	for _, some := range targets {
		for _, t := range some {
			for _, p := range t.Probes {
				if p.Kind == probe.Readiness && p.Result == nil {
					return false
				}
			}
		}
	}
	return true
}

// TestKillsOfTheEngineChangeNoVerdict kills an engine with SIGKILL, restarts it, and reads its targets from its first response
// until each probe was attempted.
func TestKillsOfTheEngineChangeNoVerdict(t *testing.T) {
	tier.Slow(t)
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/down" && down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	l := &lives{T: t, dir: t.TempDir()}
	text := fmt.Sprintf(stateConfig, u.Port(), upTargets, downTargets, serviceTargets)
	if err := os.WriteFile(l.path("config.hcl"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	defer func() { l.kill() }()
	testsync.Until(t, "all targets to be ready, and in the file", func() bool {
		all := l.targets()
		return unready(all["up"])+unready(all["down"])+unready(all["service"]) == 0 &&
			l.stored("up", probe.Passing) == upTargets && l.stored("down", probe.Passing) == downTargets &&
			l.stored("service", probe.Passing) == serviceTargets
	})
	for life := range kills() {
		l.kill()
		l.start()
		l.checkLife(life, down.Load())
		if life == 0 {
			down.Store(true)
			testsync.Until(t, "the failing targets to be in the file", func() bool {
				return l.stored("down", probe.Failing) == downTargets
			})
		}
	}
}

// checkLife checks every response of an engine until it has attempted all probes.
func (l *lives) checkLife(life int, down bool) {
	l.Helper()
	wantDown, answers := 0, 0
	if down {
		wantDown = downTargets
	}
	testsync.Until(l, "all probes to be attempted", func() bool {
		all := l.targets()
		answers++
		up, service := all["up"], all["service"]
		if len(up) != upTargets || len(service) != serviceTargets {
			l.Fatalf("got %d and %d targets", len(up), len(service))
		}
		if n, m := unready(up)+unready(service), unready(all["down"]); n > 0 || m != wantDown {
			l.Fatalf("life %d, answer %d: %d healthy targets and %d failing ones are not ready, want 0 and %d; log:\n%s",
				life, answers, n, m, wantDown, l.log)
		}
		for _, t := range service {
			if t.Instance.Restarts != 0 {
				l.Fatalf("life %d: %s was restarted", life, t.Name)
			}
		}
		return attempted(all)
	})
	if strings.Contains(l.log.String(), "verdict changed") {
		l.Errorf("life %d: a verdict has changed:\n%s", life, l.log)
	}
	if _, err := os.Stat(l.path("restarted")); err == nil {
		l.Errorf("life %d: a restart command was run", life)
	}
}
