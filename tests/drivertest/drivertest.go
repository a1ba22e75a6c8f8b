// Package drivertest provides an engine with a controller, for tests of drivers with real runtimes.
package drivertest

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// World is an engine with a controller.
type World struct {
	Engine  *engine.Engine
	Control *restart.Controller
	Probes  probe.Set
	Log     testsync.Buffer
	Stop    func() // set by Run

	t *testing.T
}

// New returns a World whose engine is started by Run.
func New(t *testing.T) *World {
	w := &World{t: t, Probes: probe.Set{}}
	log := slog.New(slog.NewTextHandler(&w.Log, nil))
	w.Engine = engine.New(engine.Config{Logger: log})
	var err error
	if w.Control, err = restart.New(restart.Config{Engine: w.Engine, Logger: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the engine:\n%s", w.Log.String())
		}
	})
	return w
}

// Rule is the rule of all probes.
var Rule = probe.Rule{Period: 200 * time.Millisecond, Timeout: time.Second, FailureThreshold: 3, TerminationGracePeriod: 3 * time.Second}

// HTTP adds a readiness and a liveness probe for an address.
func (w *World) HTTP(target, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kind := range []probe.Kind{probe.Readiness, probe.Liveness} {
		h, err := httpprobe.New(httpprobe.Config{Path: "/healthz", Port: port})
		if err != nil {
			w.t.Fatal(err)
		}
		w.Probes[probe.ID{Target: target, Kind: kind}] = probe.Probe{Rule: Rule, Handler: h, HandlerName: "http", Target: probe.Target{Address: host}}
	}
}

// Run runs the engine until Stop is called or the test ends.
func (w *World) Run(units map[string]restart.Unit, memories map[string]restart.Memory) {
	w.t.Helper()
	if _, err := w.Engine.Apply(w.Probes); err != nil {
		w.t.Fatal(err)
	}
	if err := w.Control.Apply(units); err != nil {
		w.t.Fatal(err)
	}
	w.Control.Restore(memories)
	ctx, cancel := context.WithCancel(context.Background())
	control, cancelControl := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- w.Engine.Run(ctx) }()
	controlled := make(chan error, 1)
	go func() { controlled <- w.Control.Run(control) }()
	stopped := false
	w.Stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancelControl()
		testsync.Receive(w.t, "end of the controller", controlled)
		cancel()
		testsync.Receive(w.t, "end of the engine", ended)
	}
	w.t.Cleanup(w.Stop)
}

// State returns the state of a target.
func (w *World) State(target string) engine.TargetStatus {
	s, _ := w.Engine.Target(target)
	return s
}

// Until waits until the state of a target fulfills a condition.
func (w *World) Until(target, what string, is func(engine.TargetStatus) bool) engine.TargetStatus {
	w.t.Helper()
	testsync.Until(w.t, target+": "+what, func() bool { return is(w.State(target)) })
	return w.State(target)
}

// ExpectCrashSeen crashes a service, with exit status 3, until its target becomes not ready within a limit once: on a loaded
// machine, some crashes are detected later. The probes themselves must not detect the crash.
func (w *World) ExpectCrashSeen(target, address string, limit time.Duration) {
	w.t.Helper()
	best := time.Hour
	for try := 0; try < 10 && best > limit; try++ {
		w.Until(target, "ready", IsReady)
		Get(w.t, address, "/crash")
		crashed := time.Now()
		for w.State(target).Ready {
			time.Sleep(time.Millisecond)
		}
		best = min(best, time.Since(crashed))
		w.Until(target, "exit status", func(s engine.TargetStatus) bool { return strings.Contains(s.Instance.Detail, "exit status 3") })
	}
	w.t.Logf("not ready after %v", best)
	if best > limit {
		w.t.Errorf("not ready after %v at best, want %v", best, limit)
	}
	w.Until(target, "ready again", IsReady)
}

// IsReady reports whether a target is ready and has a running instance.
func IsReady(s engine.TargetStatus) bool { return s.Ready && s.Instance.Phase == probe.Running }

// Get sends a request to a service.
func Get(t *testing.T, address, path string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Read(make([]byte, 100))
}
