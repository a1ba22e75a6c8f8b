package container

import (
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

// A container that somebody stops stays stopped. The engine reports that, and resumes when the container is started.
func TestAContainerThatSomebodyStopsIsLeftAlone(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		w, address := newWorld(t, r), gatewaytest.FreeAddress(t)
		id := r.Container(t, "web", "serve", address)
		w.HTTP("web", address)
		u := w.attach("web")
		u.BackOff = restart.BackOff{Initial: 100 * time.Millisecond, Max: 200 * time.Millisecond}
		w.Run(map[string]restart.Unit{"web": u}, nil)
		w.Until("web", "ready", drivertest.IsReady)
		if err := r.Client.Stop(t.Context(), id, time.Second); err != nil {
			t.Fatal(err)
		}
		w.Until("web", "stopped", func(s engine.TargetStatus) bool {
			return s.Instance.Reason == probe.ReasonRuntimeStop && s.State == probe.StateStopped && !s.Ready
		})
		time.Sleep(2 * time.Second) // for a start by the engine
		if c := r.Inspect(t, id); c.State.Running {
			t.Fatal("it was started again")
		}
		if err := r.Client.Start(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.Until("web", "ready again", drivertest.IsReady)
	})
}

// After a crash, a container without a restart policy is started again by the engine, and one with a policy by its
// runtime.
func TestAnAttachedContainerThatCrashesRunsAgain(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		for policy, starts := range map[string]string{"no": "by the engine", "always": "by its runtime"} {
			t.Run(starts, func(t *testing.T) {
				w, address := newWorld(t, r), gatewaytest.FreeAddress(t)
				spec := docker.Spec{Cmd: []string{"serve", address}}
				spec.HostConfig.RestartPolicy.Name = policy
				id := r.ContainerOf(t, "web-"+policy, spec)
				w.HTTP("web", address)
				w.Run(map[string]restart.Unit{"web": w.attach("web-" + policy)}, nil)
				first := w.Until("web", "ready", drivertest.IsReady)
				began := time.Now()
				drivertest.Get(t, address, "/crash")
				w.Until("web", "ready again", func(s engine.TargetStatus) bool { return drivertest.IsReady(s) && s.Instance.ID != first.Instance.ID })
				time.Sleep(time.Second) // for a second start
				if actions := r.Events(t, began, id)[id]; count(actions, "start") != 1 {
					t.Errorf("events: %v", actions)
				}
				testsync.Until(t, "exit status", func() bool { return w.State("web").Instance.Detail != "" })
				w.Stop()
			})
		}
	})
}
