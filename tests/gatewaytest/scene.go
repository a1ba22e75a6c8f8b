// Package gatewaytest has helpers for tests of gateways: an engine with a group whose members have states set by the test, and the
// gateways themselves.
package gatewaytest

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/testsync"
)

// Scene is an engine with the group "web".
type Scene struct {
	t      testing.TB
	Engine *engine.Engine
	Groups *group.Groups
	Stop   func() // stops the engine

	mu       sync.Mutex
	outcomes map[string]probe.Result
}

// New starts an engine with targets by name, each with an address and a port named http, or no address, and a group "web" of all of
// them. Their probes are unknown at first. The engine is stopped when the test ends.
func New(t testing.TB, rule group.Rule, addresses map[string]string) *Scene {
	t.Helper()
	s := &Scene{t: t, Engine: engine.New(engine.Config{}), outcomes: map[string]probe.Result{}}
	s.Groups = group.New(group.Config{Engine: s.Engine})
	set := probe.Set{}
	for name, address := range addresses {
		target := probe.Target{Address: address}
		if at, err := netip.ParseAddrPort(address); err == nil {
			target.Address, target.Ports = at.Addr().String(), map[string]uint16{"http": at.Port()}
		}
		s.outcomes[name] = probe.Result{Outcome: probe.Unknown}
		set[probe.ID{Target: name, Kind: probe.Readiness}] = probe.Probe{
			Rule:    probe.Rule{Period: probe.MinPeriod, FailureThreshold: 1},
			Target:  target,
			Handler: probe.HandlerFunc(func(_ context.Context, to probe.Target) probe.Result { return s.outcome(to.Name) }),
		}
	}
	if _, err := s.Engine.Apply(set); err != nil {
		t.Fatal(err)
	}
	for name := range addresses {
		s.Engine.Report(probe.Instance{Target: name, ID: "static", Phase: probe.Running, Since: time.Now()})
	}
	if err := s.Groups.Apply(map[string]group.Rule{"web": rule}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Engine.Run(ctx) })
	running.Go(func() { _ = s.Groups.Run(ctx) })
	s.Stop = func() { cancel(); running.Wait() }
	t.Cleanup(s.Stop)
	return s
}

func (s *Scene) outcome(target string) probe.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcomes[target]
}

// Say sets the outcomes of targets' probes from now on, and waits until the states of the group's members match. It does not wait
// for an unknown outcome.
func (s *Scene) Say(outcomes map[string]probe.Outcome) {
	s.t.Helper()
	s.mu.Lock()
	for name, o := range outcomes {
		s.outcomes[name] = probe.Result{Outcome: o}
		if o == probe.Failure {
			s.outcomes[name] = probe.Result{Outcome: o, Reason: probe.ReasonExecExit} // an outcome that the engine does not doubt
		}
	}
	s.mu.Unlock()
	want := map[probe.Outcome]probe.GatewayState{probe.Success: probe.GatewayReady, probe.Warning: probe.GatewayDegraded, probe.Failure: probe.GatewayDown}
	s.Await(func(v *group.View) bool {
		for _, name := range slices.Sorted(maps.Keys(outcomes)) {
			state, known := want[outcomes[name]]
			if m := v.Member(name); m == nil || known && m.State != state {
				return false
			}
		}
		return true
	})
}

// Leave makes the instance of a target terminate.
func (s *Scene) Leave(target string) {
	s.t.Helper()
	s.Engine.Report(probe.Instance{Target: target, ID: "static", Phase: probe.Running, Since: time.Now(), Managed: true, Terminating: true})
	s.Await(func(v *group.View) bool { return v.Member(target).State == probe.GatewayDraining })
}

// LoseTargets removes all targets and waits until the group's view is frozen.
func (s *Scene) LoseTargets() {
	s.t.Helper()
	release := s.Groups.Hold() // so that the group loses all members together
	_, err := s.Engine.Apply(nil)
	release()
	if err != nil {
		s.t.Fatal(err)
	}
	s.Await(func(v *group.View) bool { return v.Frozen })
}

// Await waits until a condition holds for a view of the group, and returns it.
func (s *Scene) Await(is func(*group.View) bool) *group.View {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testsync.Timeout)
	defer cancel()
	g := s.Groups.Get("web")
	v := g.View()
	for !is(v) {
		next, err := g.Next(ctx, v.Version)
		if err != nil {
			s.t.Fatalf("the group does not become what it should: %+v", v)
		}
		v = next
	}
	return v
}

// Run runs gateways until the test ends, or until stop is called.
func Run(t testing.TB, all interface{ Run(context.Context) error }) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = all.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}
