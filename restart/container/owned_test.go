package container

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
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
	"github.com/sonde-probe/sonde/tests/testsync"
)

// own returns a unit that creates containers for a target.
func (w *world) own(target string, arguments ...string) restart.Unit {
	spec := docker.Spec{Image: dockertest.Image, Cmd: arguments}
	spec.HostConfig.NetworkMode = "host"
	d := newOwned(w.runtimes, w.r.Socket, "engine", target, spec, "missing", nil, slog.New(slog.NewTextHandler(&w.Log, nil)))
	return restart.Unit{
		Driver: d, Revision: fmt.Sprint(arguments), TerminationGracePeriod: 3 * time.Second,
		BackOff: restart.BackOff{Initial: time.Second, Max: 10 * time.Second},
	}
}

// owned returns the containers that engines have created.
func (w *world) owned() (list []docker.Listed) {
	w.t.Helper()
	list, err := w.r.List(w.t.Context(), map[string]string{labelEngine: "engine"})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func TestAnOwnedContainerIsMadeAndReplaced(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		address := gatewaytest.FreeAddress(t)
		w := newWorld(t, r)
		w.HTTP("shop/web", address)
		w.Run(map[string]restart.Unit{"shop/web": w.own("shop/web", "serve", address)}, nil)
		first := w.Until("shop/web", "ready", drivertest.IsReady)
		began := time.Now()
		drivertest.Get(t, address, "/fail")
		second := w.Until("shop/web", "ready again", func(s engine.TargetStatus) bool { return drivertest.IsReady(s) && s.Instance.ID != first.Instance.ID })
		if !strings.Contains(second.Instance.Detail, "got SIGTERM") {
			t.Errorf("second instance: %+v", second.Instance)
		}
		list := w.owned()
		if len(list) != 1 || !strings.HasPrefix(second.Instance.ID, list[0].ID[:shortID]) {
			t.Errorf("containers: %+v", list)
		}
		deaths := 0
		for _, actions := range r.Events(t, began) {
			deaths += count(actions, "die")
		}
		if deaths != 1 {
			t.Errorf("%d containers have exited", deaths)
		}
		if _, err := w.Engine.Apply(probe.Set{}); err != nil {
			t.Fatal(err)
		}
		if err := w.Control.Apply(nil); err != nil { // the unit is removed
			t.Fatal(err)
		}
		testsync.Until(t, "the container to be removed", func() bool { return len(w.owned()) == 0 })
	})
}

func TestAContainerInACrashLoopWaitsForItsBackOff(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		w := newWorld(t, r)
		w.Run(map[string]restart.Unit{"job": w.own("job", "crash", "0", "3")}, nil)
		began := time.Now()
		s := w.Until("job", "third restart", func(s engine.TargetStatus) bool { return s.Instance.Restarts >= 3 })
		if took := time.Since(began); took < 3*time.Second { // 0, 1 and 2 s
			t.Errorf("three restarts took %v", took)
		}
		if s.Instance.LastExit.Status != 3 || !strings.Contains(s.Instance.Detail, "about to crash") {
			t.Errorf("instance: %+v", s.Instance)
		}
		if n := len(w.owned()); n > 1 {
			t.Errorf("%d containers", n)
		}
	})
}

func TestWhatCannotBeMadeIsNamed(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		w := newWorld(t, r)
		missing := docker.Spec{Image: "localhost/missing:1"}
		program := docker.Spec{Image: dockertest.Image, Entrypoint: []string{"/no/such/program"}}
		program.HostConfig.NetworkMode = "host"
		log := slog.New(slog.DiscardHandler)
		w.Run(map[string]restart.Unit{
			"image":   {Driver: newOwned(w.runtimes, r.Socket, "engine", "image", missing, "never", nil, log)},
			"program": {Driver: newOwned(w.runtimes, r.Socket, "engine", "program", program, "never", nil, log)},
		}, nil)
		for target, want := range map[string]string{"image": "localhost/missing:1", "program": "/no/such/program"} {
			s := w.Until(target, "reason", func(s engine.TargetStatus) bool { return s.Instance.LastExit.Known || s.Instance.Detail != "" })
			if !strings.Contains(s.Instance.Detail, want) {
				t.Errorf("%s: %+v", target, s.Instance)
			}
			t.Log(s.Instance.Reason, s.Instance.Detail)
		}
	})
}

// engineVariable has the socket for an engine in a process of its own, which the test kills.
const engineVariable = "SONDE_TEST_ENGINE"

func TestEngineInAProcess(t *testing.T) {
	socket := os.Getenv(engineVariable)
	if socket == "" {
		t.Skip("is run by TestContainersOutliveAnEngineThatIsKilled")
	}
	w := newWorld(t, &dockertest.Runtime{Socket: socket})
	w.Run(map[string]restart.Unit{"a": w.own("a", "sleep", "1000"), "b": w.own("b", "sleep", "1001")}, nil)
	select {}
}

func TestContainersOutliveAnEngineThatIsKilled(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		first := exec.Command(os.Args[0], "-test.run=^TestEngineInAProcess$")
		first.Env = append(os.Environ(), engineVariable+"="+r.Socket)
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, r)
		testsync.Until(t, "two containers that run", func() bool {
			list := w.owned()
			return len(list) == 2 && list[0].State == "running" && list[1].State == "running"
		})
		_ = first.Process.Kill()
		_ = first.Wait()
		memories, before := map[string]restart.Memory{}, map[string]docker.Container{}
		began := time.Now()
		units := map[string]restart.Unit{"a": w.own("a", "sleep", "1000"), "b": w.own("b", "sleep", "1002")} // b has a new configuration
		for _, l := range w.owned() {
			target, c := l.Labels[labelTarget], r.Inspect(t, l.ID)
			before[target] = c
			memories[target] = restart.Memory{Revision: units[target].RevisionID(), Instance: instanceID(c), Since: c.State.StartedAt, Started: 4}
		}
		delete(memories, "b")
		w.Run(units, memories)
		a := w.Until("a", "an instance", func(s engine.TargetStatus) bool { return s.Instance.Phase == probe.Running })
		b := w.Until("b", "an instance", func(s engine.TargetStatus) bool { return s.Instance.Phase == probe.Running })
		if a.Instance.ID != instanceID(before["a"]) || a.Instance.Restarts != 3 {
			t.Errorf("a: %+v", a.Instance)
		}
		if b.Instance.ID == instanceID(before["b"]) {
			t.Errorf("b: %+v", b.Instance)
		}
		w.Stop()
		if events := r.Events(t, began)[before["a"].ID]; count(events, "die") != 0 {
			t.Errorf("events of a: %v", events)
		}
		removed, err := w.runtimes.RemoveOthers(t.Context(), r.Socket, "engine", func(target string) bool { return target == "a" })
		if list := w.owned(); err != nil || len(list) != 1 || list[0].Labels[labelTarget] != "a" || len(removed) != 1 || removed[0] != "b" {
			t.Errorf("removed %v %v, containers: %+v", removed, err, list)
		}
	})
}
