//go:build linux

package gateways

import (
	"fmt"
	"math"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
	"github.com/sonde-probe/sonde/tests/tier"
)

// ways returns the HAProxy outputs that fail static.
func ways() []kind {
	return played(func(g kind) bool { return g.page == "haproxy.md" })
}

// forwarding returns the gateways that send HTTP requests to backends, and fail static.
func forwarding() []kind {
	return played(func(g kind) bool { return g.forwards && !g.failsClosed })
}

// allFail makes all backends fail.
func (s *scene) allFail() {
	s.t.Helper()
	mark := s.mark()
	for _, b := range s.backends {
		b.set("ready=503")
	}
	for _, b := range s.backends {
		s.verdict(mark, b, probe.Failing)
	}
}

// With panic, no request fails when no backend is ready; without it, some do.
func TestPanic(t *testing.T) {
	parallel(t)
	for _, g := range forwarding() {
		without := g
		if g.inside != nil {
			without.start = g.withoutPanic
		}
		t.Run(g.name+", with panic", func(t *testing.T) {
			parallel(t)
			play(t, g, g.engine().build(t), nil, func(s *scene) {
				s.allFail()
				s.load.pass(t, shortRequests)
				s.whole("no backend is ready")
			})
		})
		t.Run(g.name+", without", func(t *testing.T) {
			parallel(t)
			play(t, without, g.engine().build(t), withoutPanic, func(s *scene) {
				s.allFail()
				until(t, "requests that fail", func() bool { n, _ := s.load.take(); return n > 0 })
			})
		})
	}
}

// A degraded backend gets a quarter of the requests of the others.
func TestADegradedBackendGetsItsShare(t *testing.T) {
	parallel(t)
	const want, tolerance, samples = 25.0 / 225, 0.03, 5
	for _, g := range ways() {
		t.Run(g.name, func(t *testing.T) {
			parallel(t)
			noSlowStart := func(hcl string) string { return regexp.MustCompile(`(?m)^ *slow_start .*\n`).ReplaceAllString(hcl, "") }
			play(t, g, sonde.build(t), noSlowStart, func(s *scene) {
				s.backends[0].set("ready=302") // a redirect to another host, which is a warning
				until(t, "a degraded backend", func() bool {
					g, err := s.client.Group(t.Context(), "web", "")
					return err == nil && g.Counts.Degraded == 1
				})
				var share float64
				for range samples { // HAProxy may not have been notified yet
					before := s.load.answers()
					s.load.pass(t, 2*shortRequests)
					after := s.load.answers()
					one := float64(after["web-1"] - before["web-1"])
					share = one / (one + float64(after["web-2"]-before["web-2"]+after["web-3"]-before["web-3"]))
					if math.Abs(share-want) <= tolerance {
						t.Logf("the share is %.3f", share)
						s.whole("a backend is degraded")
						return
					}
				}
				t.Errorf("the share is %.3f, want %.3f", share, want)
			})
		})
	}
}

// A HAProxy that replaces another one uses all servers until it is notified: the one that is not ready gets requests for at most a
// second.
func TestANewHAProxyHears(t *testing.T) {
	parallel(t)
	const most = time.Second
	for _, g := range ways() {
		t.Run(g.name, func(t *testing.T) {
			parallel(t)
			var haproxy *gatewaytest.Process
			g.start = func(s *scene) {
				containing := map[bool]string{true: "agent-check", false: "weight 100\n    server"}[strings.Contains(g.block, "agent")]
				haproxy = s.startHAProxy("haproxy.md", containing, "")
			}
			play(t, g, sonde.build(t), nil, func(s *scene) {
				out := s.takeOut()
				haproxy.Kill()
				s.wire.forget()
				began := time.Now()
				haproxy.Start()
				s.load.forgive()
				last := s.effect(out, false, time.Time{})
				s.load.pass(t, shortRequests)
				s.whole("the new HAProxy has heard")
				n, _ := s.wire.seen(netip.MustParseAddrPort(out.requests).Addr())
				took := max(last.Sub(began), 0)
				t.Logf("the backend that is not ready got %d packets, the last one after %v", n, took)
				if tier.IsLong() && took > most {
					t.Errorf("the backend got requests for %v, want %v at most", took, most)
				}
			})
		})
	}
}

// supervised returns a configuration in which backends are processes of Sonde, with liveness probes as well.
func supervised(hcl string) string {
	self, _ := os.Executable()
	process := fmt.Sprintf(`
  process {
    command = [%q]
    env = {
      %s = each.key
      %s = "${each.value}:$REQUESTS"
      %s = "${each.value}:$HEALTH"
    }
  }

  probe "startup" {
    failure_threshold = 100
    period            = "1s"
    timeout           = "1m"
    http {
      port = "health"
      path = "/live"
    }
  }

  probe "liveness" {
    failure_threshold = 1
    period            = "1s"
    timeout           = "1m"
    http {
      port = "health"
      path = "/live"
    }
  }
`, self, nameVariable, requestVariable, healthVariable)
	ports := regexp.MustCompile(`ports +=.*http = (\d+), health = (\d+) }\n`)
	found := ports.FindStringSubmatch(hcl)
	process = strings.NewReplacer("$REQUESTS", found[1], "$HEALTH", found[2]).Replace(process)
	return strings.Replace(hcl, found[0], found[0]+process, 1)
}

// A backend that Sonde restarts finishes the requests in progress, and gets no new ones: it exits only when none has arrived for a
// while.
func TestDrainLosesNoRequest(t *testing.T) {
	parallel(t)
	const slow = 9 // number of requests; the backends take turns
	for _, g := range forwarding() {
		if g.inside != nil {
			continue // Sonde does not restart their backends
		}
		t.Run(g.name, func(t *testing.T) {
			parallel(t)
			play(t, g, sonde.build(t), supervised, func(s *scene) {
				b, answers := s.backends[0], make(chan error, slow)
				for n := range slow { // each is different for caches
					go func() { _, err := s.load.get(fmt.Sprint("/slow?", n)); answers <- err }()
				}
				until(t, "slow requests", func() bool { return b.number("slow") > 0 })
				b.set("live=500")
				until(t, "the next instance", func() bool {
					target, err := s.client.Target(t.Context(), b.name)
					return err == nil && target.Instance.Restarts == 1 && target.Ready
				})
				s.effect(b, true, time.Now())
				s.whole("drain")
				for _, other := range s.backends[1:] {
					other.set("slow=end")
				}
				for range slow {
					if err := testsync.Receive(t, "the answer to a slow request", answers); err != nil {
						t.Errorf("a slow request fails: %v", err)
					}
				}
			})
		})
	}
}
