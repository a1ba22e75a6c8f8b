package container

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	httpprobe "github.com/sonde-probe/sonde/builtin/http"
	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// world is an engine with a controller and drivers of containers.
type world struct {
	t        *testing.T
	r        *dockertest.Runtime
	runtimes *Runtimes
	engine   *engine.Engine
	control  *restart.Controller
	probes   probe.Set
	log      testsync.Buffer
	stop     func()
}

// newWorld returns an engine that begins with run.
func newWorld(t *testing.T, r *dockertest.Runtime) *world {
	w := &world{t: t, r: r, runtimes: &Runtimes{}, probes: probe.Set{}}
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	w.engine = engine.New(engine.Config{Logger: log})
	var err error
	if w.control, err = restart.New(restart.Config{Engine: w.engine, Logger: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the engine:\n%s", w.log.String())
		}
	})
	return w
}

// rule is that of all probes.
var rule = probe.Rule{Period: 200 * time.Millisecond, Timeout: time.Second, FailureThreshold: 3, TerminationGracePeriod: 3 * time.Second}

// http adds a readiness and a liveness probe of a port.
func (w *world) http(target, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kind := range []probe.Kind{probe.Readiness, probe.Liveness} {
		h, err := httpprobe.New(httpprobe.Config{Path: "/healthz", Port: port})
		if err != nil {
			w.t.Fatal(err)
		}
		w.probes[probe.ID{Target: target, Kind: kind}] = probe.Probe{Rule: rule, Handler: h, HandlerName: "http", Target: probe.Target{Address: host}}
	}
}

// exec adds a liveness probe by a command inside.
func (w *world) exec(target string, r probe.Rule, command ...string) {
	h, err := NewExec(w.runtimes, w.r.Socket, execprobe.Config{Command: command})
	if err != nil {
		w.t.Fatal(err)
	}
	w.probes[probe.ID{Target: target, Kind: probe.Liveness, Name: "exec"}] = probe.Probe{Rule: r, Handler: h, HandlerName: "exec"}
}

// attach returns the unit of a container that has a name.
func (w *world) attach(name string) restart.Unit {
	return restart.Unit{Driver: newAttached(w.runtimes, w.r.Socket, docker.Selector{Name: name}, nil, slog.New(slog.NewTextHandler(&w.log, nil))), Revision: "1"}
}

// run runs the engine until stop is called, or the test ends.
func (w *world) run(units map[string]restart.Unit, memories map[string]restart.Memory) {
	w.t.Helper()
	if _, err := w.engine.Apply(w.probes); err != nil {
		w.t.Fatal(err)
	}
	if err := w.control.Apply(units); err != nil {
		w.t.Fatal(err)
	}
	w.control.Restore(memories)
	ctx, cancel := context.WithCancel(context.Background())
	control, cancelControl := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- w.engine.Run(ctx) }()
	controlled := make(chan error, 1)
	go func() { controlled <- w.control.Run(control) }()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancelControl()
		testsync.Receive(w.t, "end of the controller", controlled)
		cancel()
		testsync.Receive(w.t, "end of the engine", ended)
	}
	w.t.Cleanup(w.stop)
}

// state returns the state of a target.
func (w *world) state(target string) engine.TargetStatus {
	s, _ := w.engine.Target(target)
	return s
}

// until waits for a state of a target.
func (w *world) until(target, what string, is func(engine.TargetStatus) bool) engine.TargetStatus {
	w.t.Helper()
	testsync.Until(w.t, target+": "+what, func() bool { return is(w.state(target)) })
	return w.state(target)
}

func isReady(s engine.TargetStatus) bool { return s.Ready && s.Instance.Phase == probe.Running }

// get makes a request to a container.
func get(t *testing.T, address, path string) {
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

// count returns how often an action is among those of a container.
func count(actions []string, action string) (n int) {
	for _, a := range actions {
		if strings.HasPrefix(a, action) {
			n++
		}
	}
	return n
}
