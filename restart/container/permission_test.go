package container

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/drivertest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// unprivilegedVariable holds the socket for a test in a process of another user, and addressVariable the address of its
// container.
const unprivilegedVariable, addressVariable = "SONDE_TEST_UNPRIVILEGED", "SONDE_TEST_ADDRESS"

// An engine whose user may use the runtime, as a member of the group docker, may not signal processes of containers.
func TestAnEngineThatMayNotSignalHasTheRuntimeRestart(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		for _, f := range []string{filepath.Dir(r.Socket), r.Socket} {
			if err := os.Chmod(f, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		address := gatewaytest.FreeAddress(t)
		spec := docker.Spec{Cmd: []string{"serve", address}}
		spec.HostConfig.RestartPolicy.Name = "always"
		id := r.ContainerOf(t, "web", spec)
		began := time.Now()
		runAsNobody(t, "TestWithoutPrivileges", unprivilegedVariable+"="+r.Socket, addressVariable+"="+address)
		if actions := r.Events(t, began, id)[id]; count(actions, "die") != 1 || count(actions, "start") != 1 {
			t.Errorf("events: %v", actions)
		}
	})
}

// runAsNobody runs a test in a process of another user.
func runAsNobody(t *testing.T, test string, env ...string) {
	t.Helper()
	dir := testsync.SocketDir(t)
	program := filepath.Join(dir, "test")
	text, err := os.ReadFile(os.Args[0])
	if err = errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(program, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	nobody := exec.Command(program, "-test.run=^"+test+"$", "-test.v")
	nobody.Env, nobody.Dir = append(os.Environ(), env...), "/"
	nobody.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: dockertest.Nobody, Gid: dockertest.Nobody}}
	if out, err := nobody.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWithoutPrivileges(t *testing.T) {
	socket, address := os.Getenv(unprivilegedVariable), os.Getenv(addressVariable)
	if socket == "" {
		t.Skip("is run by TestAnEngineThatMayNotSignalHasTheRuntimeRestart")
	}
	r := &dockertest.Runtime{Socket: socket, Client: docker.New(socket)}
	attempt := attempts(t, r, "web")
	got := attempt(time.Second, "/subject", "sleep", "5")
	if got.Outcome != probe.Failure || got.Reason != probe.ReasonExecTimeout || !strings.Contains(got.Detail, "could not be killed: process ") {
		t.Errorf("command: %+v", got)
	}
	t.Log(got.Detail)
	w := newWorld(t, r)
	w.HTTP("web", address)
	w.Run(map[string]restart.Unit{"web": w.attach("web")}, nil)
	first := w.Until("web", "ready", drivertest.IsReady)
	drivertest.Get(t, address, "/fail")
	w.Until("web", "ready again", func(s engine.TargetStatus) bool { return drivertest.IsReady(s) && s.Instance.ID != first.Instance.ID })
	testsync.Until(t, "no act", func() bool {
		return w.State("web").Instance.Reason == "" || w.State("web").Instance.Reason == probe.ReasonCrashLoop
	})
}
