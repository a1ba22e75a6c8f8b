package container

import (
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
)

func TestAFailingContainerIsRestartedOnce(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		for _, policy := range []string{"no", "always", "on-failure"} {
			t.Run(policy, func(t *testing.T) {
				name, address := "web-"+policy, gatewaytest.FreeAddress(t)
				spec := docker.Spec{Cmd: []string{"serve", address}}
				spec.HostConfig.RestartPolicy = docker.RestartPolicy{Name: policy}
				id := r.ContainerOf(t, name, spec)
				other := r.Container(t, "other-"+policy, "sleep", "1000")
				w := newWorld(t, r)
				w.HTTP("web", address)
				w.Run(map[string]restart.Unit{"web": w.attach(name)}, nil)
				first := w.Until("web", "ready", drivertest.IsReady)
				who := Config{Name: name, Host: r.Socket}.WhoRestarts(t.Context())
				if strings.Contains(who, `by the restart policy "`+policy+`" of `+name) != (policy != "no") || strings.Contains(who, "has no restart policy") != (policy == "no") {
					t.Error(who)
				}
				if first.Instance.Address != "127.0.0.1" || first.Instance.ID != instanceID(r.Inspect(t, id)) {
					t.Errorf("first instance: %+v", first.Instance)
				}
				began := time.Now()
				drivertest.Get(t, address, "/fail")
				second := w.Until("web", "ready again", func(s engine.TargetStatus) bool { return drivertest.IsReady(s) && s.Instance.ID != first.Instance.ID })
				time.Sleep(time.Second) // for another start
				if again := w.State("web"); again.Instance.ID != second.Instance.ID || !drivertest.IsReady(again) {
					t.Errorf("third instance: %+v", again)
				}
				events := r.Events(t, began, id)
				if actions := events[id]; count(actions, "die") != 1 || count(actions, "start") != 1 {
					t.Errorf("events of the container: %v", actions)
				}
				if n := count(events[other], "die") + count(events[other], "start"); n != 0 {
					t.Errorf("events of the other container: %v", events[other])
				}
				if log := w.Log.String(); strings.Contains(log, string(probe.ReasonOperatorRestart)) || !strings.Contains(log, string(probe.ReasonEnded)) {
					t.Error("the restart is not one because of a probe")
				}
				if c := r.Inspect(t, id); instanceID(c) != second.Instance.ID {
					t.Errorf("the container is %s, the instance %+v", instanceID(c), second.Instance)
				}
				w.Stop()
				if c := r.Inspect(t, id); !c.State.Running || instanceID(c) != second.Instance.ID {
					t.Errorf("after the engine has stopped: %+v", c.State)
				}
			})
		}
	})
}

func TestACrashIsSeenAtOnce(t *testing.T) {
	dockertest.EachAlone(t, func(t *testing.T, r *dockertest.Runtime) {
		address := gatewaytest.FreeAddress(t)
		r.Container(t, "web", "serve", address)
		w := newWorld(t, r)
		w.HTTP("web", address)
		for key, p := range w.Probes { // so that only events can report it
			p.Rule.Period = time.Minute
			w.Probes[key] = p
		}
		u := w.attach("web")
		u.BackOff = restart.BackOff{Initial: time.Millisecond, Max: 10 * time.Millisecond}
		w.Run(map[string]restart.Unit{"web": u}, nil)
		limit := 100 * time.Millisecond // after an event, which is up to 250 ms late with Podman
		if r.Name == "podman" {
			limit += 250 * time.Millisecond
		}
		w.ExpectCrashSeen("web", address, limit)
	})
}
