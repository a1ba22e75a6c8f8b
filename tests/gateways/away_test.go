//go:build linux

package gateways

import (
	"net/netip"
	"regexp"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/api"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/plant"
	"github.com/sonde-probe/sonde/tests/tier"
)

// In the long form, absence is how long Sonde is stopped, and lateAnswer how late probes are answered for the next Sonde. In the
// short form, Sonde is stopped for a number of requests.
const (
	absence    = 5 * time.Second
	lateAnswer = 400 * time.Millisecond
	awayShort  = 100 // requests
)

// failStatic returns the gateways that keep their backends without Sonde.
func failStatic() []kind {
	return played(func(g kind) bool { return !g.failsClosed && g.inside == nil })
}

// withEngines returns the gateways that embed an engine.
func withEngines() []kind { return played(func(g kind) bool { return g.inside != nil }) }

// withoutPanic returns a configuration in which gateways apply each verdict, and probes wait for late responses.
func withoutPanic(hcl string) string {
	hcl = regexp.MustCompile(`(?m)^ *panic .*\n`).ReplaceAllString(hcl, "")
	return regexp.MustCompile(`(?m)^( *timeout +=) .*$`).ReplaceAllString(hcl, `$1 "10s"`)
}

// While Sonde is stopped, and while the next one has no result of any backend yet, gateways keep their backends: no request fails,
// and the backend that is not ready gets none.
func TestGatewaysKeepWhatTheyHaveWithoutSonde(t *testing.T) {
	parallel(t)
	for _, g := range failStatic() {
		t.Run(g.name, func(t *testing.T) {
			parallel(t)
			play(t, g, sonde.build(t), withoutPanic, func(s *scene) {
				out := s.takeOut()
				s.whole("a backend is not ready")
				before := s.kept(out)
				s.killSonde()
				s.whileAway(absence)
				s.whole("Sonde is away")
				s.hold(true)
				s.startSonde()
				s.awaitProbes("attempts", func(p api.Probe) bool { return p.Attempting })
				s.whileAway(lateAnswer)
				s.whole("Sonde knows nothing yet")
				s.hold(false)
				s.awaitProbes("verdicts", func(p api.Probe) bool { return p.Decided })
				s.upToDate()
				s.whileAway(lateAnswer)
				s.whole("Sonde is back")
				if after := s.kept(out); after != before {
					t.Errorf("the gateway has changed what it uses: %+v, before %+v", after, before)
				}
				mark := s.mark()
				out.set("ready=200")
				s.effect(out, true, s.verdict(mark, out, probe.Passing))
				s.whole("the backend is ready")
			})
		})
	}
}

// takeOut makes the first backend not ready, and returns it when it gets no more requests.
func (s *scene) takeOut() *backend {
	s.t.Helper()
	out, mark := s.backends[0], s.mark()
	out.set("ready=503")
	s.effect(out, false, s.verdict(mark, out, probe.Failing))
	return out
}

// kept is the state that must not change: the backends that a gateway reports to use, or the packets that it sends to a backend.
type kept struct {
	view    string
	packets int
}

func (s *scene) kept(out *backend) (k kept) {
	if s.view != nil {
		return kept{view: s.view.sinceAll()}
	}
	k.packets, _ = s.wire.seen(netip.MustParseAddrPort(out.requests).Addr())
	return k
}

// whileAway lets requests pass: for a time in the long form, otherwise a number of them.
func (s *scene) whileAway(lasts time.Duration) {
	s.t.Helper()
	switch {
	case tier.IsLong() || s.load == nil:
		time.Sleep(lasts)
	default:
		s.load.pass(s.t, awayShort)
	}
}

// hold makes all backends stop responding to readiness probes, or resume.
func (s *scene) hold(held bool) {
	for _, b := range s.backends {
		b.set(map[bool]string{true: "held=true", false: "held=false"}[held])
	}
}

// awaitProbes waits until a condition holds for the probe of each backend.
func (s *scene) awaitProbes(what string, is func(api.Probe) bool) {
	s.t.Helper()
	until(s.t, what, func() bool {
		for _, b := range s.backends {
			target, err := s.client.Target(s.t.Context(), b.name)
			if err != nil || len(target.Probes) != 1 || !is(target.Probes[0]) {
				return false
			}
		}
		return true
	})
}

// undecided is a fault of the product: gateways use a group before its state is known.
var undecided = plant.Fault{
	Name: "a group that is used before it is decided",
	File: "group/group.go",
	Old:  "func (g *Group) isUsable() bool { return g.wait.over && g.isKnown() }",
	New:  "func (g *Group) isUsable() bool { return true }",
}

// The test above detects a Sonde that does not wait for the first verdicts: it removes all backends.
func TestASondeThatDoesNotWaitIsFound(t *testing.T) {
	parallel(t)
	program := sonde.with(t, undecided)
	for _, g := range failStatic() {
		t.Run(g.name, func(t *testing.T) {
			parallel(t)
			play(t, g, program, withoutPanic, func(s *scene) {
				s.takeOut()
				s.killSonde()
				s.hold(true)
				s.startSonde()
				defer s.hold(false)
				if s.view != nil {
					for _, b := range s.backends {
						s.view.await(t, b.name, false)
					}
					return
				}
				until(t, "requests that fail", func() bool { n, _ := s.load.take(); return n > 0 })
			})
		})
	}
}

// A gateway with an embedded engine, restarted before any backend has answered a probe, uses all backends: no request fails. The
// backend that is not ready gets no requests once that is known.
func TestGatewaysWithEnginesUseAllBackendsAtFirst(t *testing.T) {
	parallel(t)
	for _, g := range withEngines() {
		t.Run(g.name, func(t *testing.T) {
			parallel(t)
			g.start = g.withoutPanic
			play(t, g, g.inside.build(t), nil, func(s *scene) {
				out := s.takeOut()
				s.whole("a backend is not ready")
				mark := s.mark()
				s.startAgain()
				s.whileAway(lateAnswer)
				s.whole("the gateway knows nothing yet")
				s.hold(false)
				s.verdict(mark, out, probe.Failing)
				s.effect(out, false, time.Time{})
				s.whole("the gateway knows the backends")
			})
		})
	}
}

// The test above detects a gateway that does not wait for the first verdicts.
func TestAGatewayThatDoesNotWaitIsFound(t *testing.T) {
	parallel(t)
	for _, g := range withEngines() {
		t.Run(g.name, func(t *testing.T) {
			parallel(t)
			g.start = g.withoutPanic
			play(t, g, g.inside.with(t, undecided), nil, func(s *scene) {
				s.startAgain()
				defer s.hold(false)
				until(t, "requests that fail", func() bool { n, _ := s.load.take(); return n > 0 })
			})
		})
	}
}

// startAgain kills the gateway, and restarts it while backends do not answer probes. Requests that began before that do not count.
func (s *scene) startAgain() {
	s.gateway.Kill()
	s.hold(true)
	s.gateway.Start()
	s.load.forgive()
}
