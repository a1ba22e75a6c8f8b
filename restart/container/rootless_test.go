package container

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/drivertest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/tier"
)

// rootlessVariable holds the address of the container for a test in a process of the user that owns the runtime.
const rootlessVariable = "SONDE_TEST_ROOTLESS"

// An engine of the same user finds rootless Podman, runs commands in its containers, and restarts them.
func TestRootlessPodman(t *testing.T) {
	tier.CI(t)
	t.Parallel()
	r, runtimeDir := dockertest.RootlessPodman(t)
	address := gatewaytest.FreeAddress(t)
	began, id := time.Now(), r.Container(t, "web", "serve", address)
	runAsNobody(t, "TestAsTheUserOfRootlessPodman", rootlessVariable+"="+address, "XDG_RUNTIME_DIR="+runtimeDir, "DOCKER_HOST=")
	if actions := r.Events(t, began, id)[id]; count(actions, "die") != 1 || count(actions, "start") != 2 {
		t.Errorf("events: %v", actions)
	}
}

func TestAsTheUserOfRootlessPodman(t *testing.T) {
	address := os.Getenv(rootlessVariable)
	if address == "" {
		t.Skip("is run by TestRootlessPodman")
	}
	socket, err := docker.Socket("")
	if err != nil || !strings.HasPrefix(socket, os.Getenv("XDG_RUNTIME_DIR")) {
		t.Fatalf("%s, %v", socket, err)
	}
	r := &dockertest.Runtime{Socket: socket, Client: docker.New(socket)}
	attempt := attempts(t, r, "web")
	if got := attempt(time.Second, "/subject", "sleep", "5"); got.Outcome != probe.Failure || got.Reason != probe.ReasonExecTimeout || strings.Contains(got.Detail, "could not be killed") {
		t.Errorf("command: %+v", got)
	}
	w := newWorld(t, r)
	w.HTTP("web", address)
	w.Run(map[string]restart.Unit{"web": w.attach("web")}, nil)
	first := w.Until("web", "ready", drivertest.IsReady)
	drivertest.Get(t, address, "/fail")
	w.Until("web", "ready again", func(s engine.TargetStatus) bool { return drivertest.IsReady(s) && s.Instance.ID != first.Instance.ID })
}
