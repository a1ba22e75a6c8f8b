package container

import (
	"log/slog"
	"strings"
	"testing"

	execprobe "github.com/sonde-probe/sonde/builtin/exec"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/drivertest"
)

// world is an engine with a controller and drivers of containers.
type world struct {
	*drivertest.World
	t        *testing.T
	r        *dockertest.Runtime
	runtimes *Runtimes
}

// newWorld returns an engine that Run starts.
func newWorld(t *testing.T, r *dockertest.Runtime) *world {
	return &world{World: drivertest.New(t), t: t, r: r, runtimes: &Runtimes{}}
}

// exec adds a liveness probe that runs a command inside the container.
func (w *world) exec(target string, r probe.Rule, command ...string) {
	h, err := NewExec(w.runtimes, w.r.Socket, execprobe.Config{Command: command})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Probes[probe.ID{Target: target, Kind: probe.Liveness, Name: "exec"}] = probe.Probe{Rule: r, Handler: h, HandlerName: "exec"}
}

// attach returns the unit of the container with a name.
func (w *world) attach(name string) restart.Unit {
	return restart.Unit{Driver: newAttached(w.runtimes, w.r.Socket, docker.Selector{Name: name}, nil, slog.New(slog.NewTextHandler(&w.Log, nil))), Revision: "1"}
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
