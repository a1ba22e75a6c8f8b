package wasmhost_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
	"github.com/sonde-probe/sonde/wasmhost"
	"github.com/sonde-probe/sonde/wasmhost/abi"
)

// goGuest is the plugin in testdata/guest, built and compiled once for all tests.
type goGuest struct {
	once   sync.Once
	plugin *wasmhost.Plugin
	err    error
}

func (g *goGuest) load(t testing.TB) *wasmhost.Plugin {
	t.Helper()
	g.once.Do(func() { g.plugin, g.err = buildGuest() })
	if g.err != nil {
		t.Fatal(g.err)
	}
	if err := g.plugin.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g.plugin
}

var shared goGuest

// TestMain frees the plugin that the tests share.
func TestMain(m *testing.M) {
	if os.Getenv(answerEnv) != "" {
		if err := answerLines(); err != nil {
			panic(err)
		}
		return
	}
	os.Setenv("SONDE_TEST", "seen")
	code := m.Run()
	if shared.plugin != nil {
		if err := shared.plugin.Close(context.Background()); err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

func buildGuest() (*wasmhost.Plugin, error) {
	dir, err := os.MkdirTemp("", "sonde-guest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "guest.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", file, "./testdata/guest")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, &exec.Error{Name: string(out), Err: err}
	}
	module, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	module, err = abi.WriteManifest(module, abi.Manifest{
		Name: "guest", ABI: 1, Settings: []abi.Setting{{Name: "text", Type: abi.TypeString, Required: true}},
	})
	if err != nil {
		return nil, err
	}
	return wasmhost.Load(wasmhost.Config{Module: module, Grant: wasmhost.Grant{Env: []string{"SONDE_TEST"}}})
}

// pong responds to each line after a delay.
func pong(delay time.Duration) func(net.Conn) {
	return func(conn net.Conn) {
		for in := bufio.NewScanner(conn); in.Scan(); {
			timer := time.NewTimer(delay)
			<-timer.C
			io.WriteString(conn, "PONG\n")
		}
	}
}

// mute never responds.
func mute(conn net.Conn) { io.Copy(io.Discard, conn) }

func TestAGoGuestUsesOrdinaryConnections(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	refusing := serve(t, mute)
	refusing.Ports = map[string]uint16{"db": 1}
	tests := map[string]struct {
		target  probe.Target
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"line":  {serve(t, pong(0)), probe.Success, ""},
		"two":   {serve(t, pong(20*time.Millisecond)), probe.Success, ""},
		"late":  {serve(t, mute), probe.Success, ""},
		"files": {probe.Target{Name: "web"}, probe.Success, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := attempt(t, handler(t, shared.load(t), map[string]any{"text": name}), test.target, plenty)
			wantResult(t, got, test.outcome, test.reason)
		})
	}
	got := attempt(t, handler(t, shared.load(t), map[string]any{"text": "line"}), refusing, plenty)
	wantResult(t, got, probe.Failure, probe.ReasonTCPRefused)
}

// A guest that still runs abi.Grace after its deadline would be stopped, and its attempt would have
// another reason.
func TestAWaitingGoGuestReturnsAtTheDeadline(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	p := shared.load(t)
	wantResult(t, attempt(t, handler(t, p, map[string]any{"text": "line"}), serve(t, pong(0)), plenty), probe.Success, "") // an instance is started
	before, late := p.Stats().Started, uint64(0)
	for _, name := range []string{"line", "two"} {
		h, silent := handler(t, p, map[string]any{"text": name}), serve(t, mute)
		testsync.Longer(t, name, 100*time.Millisecond, testsync.Timeout, func(timeout time.Duration) bool {
			got := attempt(t, h, silent, timeout)
			if got.Reason == wasmhost.ReasonBusy || got.Reason == wasmhost.ReasonStarting {
				late++
				return false
			}
			if got.Outcome != probe.Failure || got.Reason != probe.ReasonTCPTimeout && got.Reason != probe.ReasonTimeout {
				t.Errorf("%s: got %v %q: %s", name, got.Outcome, got.Reason, got.Detail)
			}
			return true
		})
	}
	if started := p.Stats().Started - before; started > 1+late {
		t.Errorf("%d instances were started for 2 attempts, and %d that were late", started, late)
	}
}

func TestFaultsOfAGoGuestHavePluginReasons(t *testing.T) {
	tier.Slow(t)
	tier.NoRace(t)
	tests := map[string]struct {
		outcome probe.Outcome
		reason  probe.Reason
	}{
		"sleep": {probe.Failure, "plugin.timeout"},
		"panic": {probe.Unknown, "plugin.trap"},
		"exit":  {probe.Unknown, "plugin.exit"},
		"hoard": {probe.Unknown, "plugin.memory"},
		"deep":  {probe.Unknown, "plugin.memory"},
		"dials": {probe.Unknown, "plugin.network"},
		"looks": {probe.Unknown, "plugin.network"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := handler(t, shared.load(t), map[string]any{"text": name})
			timeout := plenty
			if test.reason == "plugin.timeout" {
				timeout = 2 * time.Second
			}
			var got probe.Result
			testsync.Longer(t, name, timeout, testsync.Timeout, func(timeout time.Duration) bool {
				got = attempt(t, h, probe.Target{Name: "web"}, timeout)
				return got.Reason != wasmhost.ReasonBusy && got.Reason != wasmhost.ReasonStarting
			})
			wantResult(t, got, test.outcome, test.reason)
		})
	}
}
