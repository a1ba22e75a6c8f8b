package container

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/docker"
	"github.com/sonde-probe/sonde/restart"
	"github.com/sonde-probe/sonde/tests/dockertest"
	"github.com/sonde-probe/sonde/tests/drivertest"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

func TestAnInstanceThatHasChangedIsLeftAlone(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		for _, policy := range []string{"no", "always"} {
			spec := docker.Spec{Cmd: []string{"sleep", "1000"}}
			spec.HostConfig.RestartPolicy.Name = policy
			id := r.ContainerOf(t, "web-"+policy, spec)
			judged := r.Inspect(t, id)
			if err := r.Restart(t.Context(), id, 0); err != nil { // by hand, between verdict and act
				t.Fatal(err)
			}
			restarted := r.Inspect(t, id)
			ctx, cancel := context.WithTimeout(t.Context(), testsync.Timeout)
			defer cancel()
			rt := (&Runtimes{}).get(r.Socket)
			if err := testsync.Receive(t, "error", rt.act(ctx, judged, 0).done); !errors.Is(err, docker.ErrChanged) {
				t.Errorf("%s: %v", policy, err)
			}
			run := &ownedRun{owned: newOwned(nil, r.Socket, "", "", docker.Spec{}, "", nil, slog.New(slog.DiscardHandler)), rt: rt}
			if err := testsync.Receive(t, "error", run.terminate(ctx, judged, 0).done); !errors.Is(err, docker.ErrChanged) {
				t.Errorf("%s: terminated: %v", policy, err)
			}
			if now := r.Inspect(t, id); !restarted.IsSame(now) {
				t.Errorf("%s: %+v has become %+v", policy, restarted.State, now.State)
			}
		}
	})
}

// If a failing container is restarted by hand, its verdicts start over, and the engine does not restart it as well.
func TestAContainerThatIsRestartedByHandIsJudgedAnew(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		for name, unit := range map[string]func(w *world, address string) (restart.Unit, string){
			"attached": func(w *world, address string) (restart.Unit, string) {
				return w.attach("web"), r.Container(t, "web", "serve", address)
			},
			"owned": func(w *world, address string) (restart.Unit, string) { return w.own("web", "serve", address), "" },
		} {
			t.Run(name, func(t *testing.T) {
				address := gatewaytest.FreeAddress(t)
				w := newWorld(t, r)
				w.HTTP("web", address)
				u, id := unit(w, address)
				w.Run(map[string]restart.Unit{"web": u}, nil)
				first := w.Until("web", "ready", drivertest.IsReady)
				if id == "" {
					id = w.owned()[0].ID
				}
				began := time.Now()
				drivertest.Get(t, address, "/fail")
				if err := r.Restart(t.Context(), id, 2*time.Second); err != nil {
					t.Fatal(err)
				}
				second := w.Until("web", "ready again", func(s engine.TargetStatus) bool { return drivertest.IsReady(s) && s.Instance.ID != first.Instance.ID })
				time.Sleep(time.Second) // for another restart
				if again := w.State("web"); again.Instance.ID != second.Instance.ID || again.Instance.ID != instanceID(r.Inspect(t, id)) {
					t.Errorf("instance: %+v", again.Instance)
				}
				if actions := r.Events(t, began, id)[id]; count(actions, "die") != 1 || count(actions, "start") != 1 {
					t.Errorf("events: %v", actions)
				}
				w.Stop()
			})
		}
	})
}
