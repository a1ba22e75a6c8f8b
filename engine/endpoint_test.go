package engine_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/internal/nonblock"
	"github.com/sonde-probe/sonde/probe"
)

// locator is a handler that passes immediately and records the targets of its calls.
type locator struct{ targets []probe.Target }

func (a *locator) Probe(_ context.Context, t probe.Target) probe.Result {
	a.targets = append(a.targets, t)
	return probe.Result{Outcome: probe.Success}
}

// steppingLocator is a locator whose attempts are made by the loop.
type steppingLocator struct{ locator }

func (a *steppingLocator) Step(at *nonblock.Attempt) nonblock.Progress {
	at.Result = a.Probe(context.Background(), at.Target)
	return nonblock.StepDone
}

// A container runtime may assign another address and other published ports to each instance.
func TestAttemptsAreMadeWhereTheInstanceIs(t *testing.T) {
	blocking, stepping := &locator{}, &steppingLocator{}
	for name, h := range map[string]probe.Handler{"on a worker": blocking, "in the loop": stepping} {
		of := blocking
		if h == stepping {
			of = &stepping.locator
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
				p := with(h)
				p.Rule.Kind, p.Target = probe.Readiness, probe.Target{Address: "10.0.0.1", Ports: map[string]uint16{"http": 80}}
				apply(t, e, probe.Set{readiness: p})
				for _, c := range []struct {
					in      probe.Instance
					address string
					port    uint16
				}{
					{instance("a"), "10.0.0.1", 80},
					{probe.Instance{ID: "b", Address: "172.17.0.2"}, "172.17.0.2", 80},
					{probe.Instance{ID: "c", Address: "127.0.0.1", Ports: map[string]uint16{"http": 32768}}, "127.0.0.1", 32768},
					{probe.Instance{ID: "d", Ports: map[string]uint16{}}, "10.0.0.1", 80},
				} {
					of.targets = nil
					c.in.Target, c.in.Phase, c.in.Since = "web", probe.Running, time.Now()
					e.Report(c.in)
					pass(time.Minute)
					for _, got := range of.targets {
						if got.Instance != c.in.ID || got.Address != c.address || got.Ports["http"] != c.port || got.Name != "web" {
							t.Errorf("an attempt at instance %s is made at %+v", c.in.ID, got)
						}
					}
					st, _ := e.Target("web")
					if len(of.targets) < 5 || st.Address != c.address || st.Ports["http"] != c.port || !st.Instance.Equal(c.in) {
						t.Errorf("%d attempts; target %+v", len(of.targets), st)
					}
				}
			})
		})
	}
}

// A reader of a target's address, such as a group, is notified when its instance gets another address.
func TestSubscribersSeeTheAddressOfTheInstance(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{readiness: with(says(probe.Success))})
		sub := e.SubscribeTargets()
		defer sub.Close()
		in := instance("a")
		for _, in.Address = range []string{"172.17.0.2", "172.17.0.3", ""} {
			in.Ports = map[string]uint16{"http": uint16(len(in.Address))}
			e.Report(in)
			var last engine.TargetStatus
			for st, ok := sub.Poll(); ok; st, ok = sub.Poll() {
				last = st
			}
			if last.Address != in.Address || !maps.Equal(last.Ports, in.Ports) {
				t.Errorf("the target is at %q %v, want %q", last.Address, last.Ports, in.Address)
			}
		}
	})
}

// After a restart of the engine with its state, the instance in the driver's memory is reported first.
func TestARestatedTargetIsWhereItsInstanceIs(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		apply(t, e, probe.Set{readiness: with(says(probe.Success))})
		in := instance("a")
		in.Address, in.Ports = "172.17.0.2", map[string]uint16{"http": 8080}
		if err := e.Admin().Restate(in, engine.Restated{}); err != nil {
			t.Fatal(err)
		}
		if st, _ := e.Target("web"); st.Address != in.Address || st.Ports["http"] != 8080 {
			t.Errorf("target %+v", st)
		}
	})
}

// A failed request to a container runtime is no evidence about the target, regardless of the rule's OnError (K71).
func TestAnErrorOfTheRuntimeIsNeverAFailure(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := says(probe.Success)
		p := with(h)
		p.Rule = probe.Rule{Kind: probe.Liveness, Period: time.Second, OnError: probe.ErrorFails}
		apply(t, e, probe.Set{liveness: p})
		e.Report(instance("a"))
		pass(5 * time.Second)
		h.give(probe.Broken(probe.ReasonRuntimeTimeout, "no answer of docker.sock in 10s"))
		pass(time.Minute)
		st, _ := e.Target("web")
		if l := st.Probes[0]; l.Verdict != probe.Passing || !l.Blind || l.Attempts[probe.Unknown] < 50 || st.State != probe.StateBlind || !st.Ready {
			t.Errorf("%v, %v, blind %v, attempts %v", st.State, l.Verdict, l.Blind, l.Attempts)
		}
	})
}
