package container

import (
	"fmt"
	"os"
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
	"github.com/sonde-probe/sonde/tests/tier"
)

// While a runtime is unreachable, no verdict changes, and nothing is restarted. Once it is reachable again, events in
// the meantime are noticed.
func TestNothingIsRestartedWhileTheRuntimeIsAway(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		containers, away := tier.Pick(2, 3, 20), tier.Pick(time.Second, 2*time.Second, time.Minute)
		w := newWorld(t, r)
		units, addresses := map[string]restart.Unit{}, []string{}
		for n := range containers {
			name, address := fmt.Sprintf("web-%d", n), gatewaytest.FreeAddress(t)
			addresses = append(addresses, address)
			w.HTTP(name, address)
			// A command takes a tenth of a second of CPU time.
			w.exec(name, probe.Rule{Period: time.Duration(containers) * 500 * time.Millisecond, Timeout: 2 * time.Second, FailureThreshold: 2}, "/subject", "test", "/subject")
			if n%2 == 0 {
				r.Container(t, name, "serve", address)
				units[name] = w.attach(name)
			} else {
				units[name] = w.own(name, "serve", address)
			}
		}
		w.Run(units, nil)
		before := map[string]engine.TargetStatus{}
		for name := range units {
			before[name] = w.Until(name, "ready and live by a command", func(s engine.TargetStatus) bool {
				return drivertest.IsReady(s) && allPass(s)
			})
		}
		began := time.Now()
		for _, outage := range []struct {
			name       string
			begin, end func()
		}{
			{"renamed socket", func() { rename(t, r.Socket, r.Socket+".away") }, func() { rename(t, r.Socket+".away", r.Socket) }},
			{"stall", func() { r.Signal(t, syscall.SIGSTOP) }, func() { r.Signal(t, syscall.SIGCONT) }},
			{"stopped daemon", func() { r.Stop(t) }, func() { r.Start(t) }},
		} {
			outage.begin()
			for name := range units {
				w.Until(name, "reason of the runtime during "+outage.name, func(s engine.TargetStatus) bool { return s.Instance.Reason.BlamesRuntime() })
			}
			time.Sleep(away) // there is no event to wait for: nothing may happen
			for name, was := range before {
				s := w.State(name)
				if s.Instance.ID != was.Instance.ID || s.Instance.Phase != probe.Running || !s.Ready || !allPass(s) {
					t.Errorf("%s, %s: %+v, before %+v", outage.name, name, s, was)
				}
			}
			outage.end()
			for name := range units {
				w.Until(name, "recovery from "+outage.name, func(s engine.TargetStatus) bool { return s.Instance.Reason == "" })
			}
		}
		for id, actions := range r.Events(t, began) {
			if n := count(actions, "die") + count(actions, "start"); n != 0 {
				t.Errorf("events of %s: %v", id, actions)
			}
		}
		// A target that fails while its runtime is unreachable is restarted once the runtime is reachable.
		rename(t, r.Socket, r.Socket+".away")
		w.Until("web-0", "outage", func(s engine.TargetStatus) bool { return s.Instance.Reason.BlamesRuntime() })
		drivertest.Get(t, addresses[0], "/fail")
		w.Until("web-0", "failing", func(s engine.TargetStatus) bool { return !s.Live })
		time.Sleep(time.Second)
		if s := w.State("web-0"); s.Instance.ID != before["web-0"].Instance.ID {
			t.Errorf("failing during an outage: %+v", s.Instance)
		}
		rename(t, r.Socket+".away", r.Socket)
		w.Until("web-0", "restart after the outage", func(s engine.TargetStatus) bool {
			return drivertest.IsReady(s) && s.Instance.ID != before["web-0"].Instance.ID
		})
		testsync.Until(t, "one restart", func() bool { return r.Inspect(t, "web-0").State.Running })
	})
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func allPass(s engine.TargetStatus) bool {
	for _, p := range s.Probes {
		if p.Verdict != probe.Passing {
			return false
		}
	}
	return len(s.Probes) == 3
}

// An engine that starts while the runtime is unreachable resumes from the memory of the previous engine.
func TestAnEngineThatStartsWhileTheRuntimeIsAwayGoesOn(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		first := newWorld(t, r)
		units := func(w *world) map[string]restart.Unit {
			return map[string]restart.Unit{"own": w.own("own", "sleep", "1000"), "web": w.attach("web")}
		}
		r.Container(t, "web", "sleep", "1000")
		first.Run(units(first), nil)
		memories, before := map[string]restart.Memory{}, map[string]string{}
		for target := range units(first) {
			before[target] = first.Until(target, "an instance", func(s engine.TargetStatus) bool { return s.Instance.Phase == probe.Running }).Instance.ID
			memories[target], _ = first.Control.Memory(target)
		}
		first.Stop()
		rename(t, r.Socket, r.Socket+".away")
		second := newWorld(t, r)
		began := time.Now()
		second.Run(units(second), memories)
		for target, id := range before {
			s := second.Until(target, "reason of the runtime", func(s engine.TargetStatus) bool { return s.Instance.Reason.BlamesRuntime() })
			if s.Instance.ID != id || s.Instance.Phase != probe.Running {
				t.Errorf("%s: %+v", target, s.Instance)
			}
		}
		rename(t, r.Socket+".away", r.Socket)
		for target, id := range before {
			s := second.Until(target, "recovery", func(s engine.TargetStatus) bool { return !s.Instance.Reason.BlamesRuntime() })
			if s.Instance.ID != id || s.Instance.Phase != probe.Running || s.Instance.Restarts != 0 {
				t.Errorf("%s: %+v", target, s.Instance)
			}
		}
		for id, actions := range r.Events(t, began) {
			t.Errorf("events of %s: %v", id, actions)
		}
	})
}

// A container that cannot be created because the runtime is unreachable has the reason of the runtime, not that of a
// shortage.
func TestAStartThatMeetsAnAbsentRuntimeIsWithheld(t *testing.T) {
	dockertest.Each(t, func(t *testing.T, r *dockertest.Runtime) {
		w := newWorld(t, r)
		// The watch has not noticed yet that calls fail.
		w.runtimes.known = map[string]*runtime{r.Socket: {Client: docker.New(r.Socket + ".away"), watch: docker.NewWatch(r.Client)}}
		w.Run(map[string]restart.Unit{"web": w.own("web", "sleep", "1000")}, nil)
		s := w.Until("web", "a reason", func(s engine.TargetStatus) bool {
			return s.Instance.Reason != "" && s.Instance.Reason != probe.ReasonStarting
		})
		if s.Instance.Reason != probe.ReasonRuntimeUnavailable || s.Instance.Restarts != 0 {
			t.Errorf("instance: %+v", s.Instance)
		}
		if err := os.Symlink(r.Socket, r.Socket+".away"); err != nil {
			t.Fatal(err)
		}
		w.Until("web", "an instance", func(s engine.TargetStatus) bool { return s.Instance.Phase == probe.Running })
	})
}
