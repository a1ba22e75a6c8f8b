package haproxy

import (
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-probe/sonde/gateway"
	"github.com/sonde-probe/sonde/gateway/agent"
	"github.com/sonde-probe/sonde/group"
	"github.com/sonde-probe/sonde/probe"
	"github.com/sonde-probe/sonde/tests/gatewaytest"
	"github.com/sonde-probe/sonde/tests/testsync"
)

const page = "../../docs/gateways/haproxy.md"

// edge is HAProxy with a configuration of docs/gateways in front of three servers.
type edge struct {
	t        *testing.T
	rule     group.Rule
	spec     gateway.Spec
	backends []*gatewaytest.Backend
	scene    *gatewaytest.Scene
	stop     func() // ends Sonde
	haproxy  *gatewaytest.Process
	load     *gatewaytest.Load
}

var names = []string{"web-1", "web-2", "web-3"}

// both runs a test with each of the outputs for HAProxy, and with all servers in use.
func both(t *testing.T, rule group.Rule, play func(*edge)) {
	rule.Port = "http"
	for _, output := range []string{"agent", "haproxy"} {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			dir := testsync.SocketDir(t)
			e := &edge{t: t, rule: rule, backends: gatewaytest.Backends(t, names...)}
			admin, front := filepath.Join(dir, "admin.sock"), filepath.Join(dir, "edge.sock")
			replace := []string{":8080", "unix@" + front, "/run/haproxy/admin.sock", admin}
			for i, b := range e.backends {
				replace = append(replace, fmt.Sprintf("10.0.0.%d:80", 7+i), b.Address)
			}
			containing := "weight 100\n    server"
			e.spec = gateway.Spec{Output: output, Groups: []string{"web"}}
			if output == "agent" {
				containing = "agent-check"
				listen := gatewaytest.FreeAddress(t)
				_, port, _ := net.SplitHostPort(listen)
				replace = append(replace, "agent-port 9777", "agent-port "+port)
				e.spec.New = func() gateway.Output { return agent.New(agent.Config{Listen: listen}) }
			} else {
				e.spec.New = func() gateway.Output { return New(Config{Socket: admin}) }
			}
			text := strings.NewReplacer(replace...).Replace(gatewaytest.CodeBlock(t, page, "haproxy", containing))
			config := gatewaytest.WriteFile(t, dir, "haproxy.cfg", text)
			e.haproxy = gatewaytest.Start(t, gatewaytest.Accepts(front), "haproxy", "-db", "-f", config)
			e.start()
			e.say(probe.Success, probe.Success, probe.Success)
			e.load = gatewaytest.NewLoad(front)
			defer e.load.Stop()
			play(e)
		})
	}
}

// start starts Sonde without any probe results.
func (e *edge) start() {
	addresses := map[string]string{}
	for _, b := range e.backends {
		addresses[b.Name] = b.Address
	}
	e.scene = gatewaytest.New(e.t, e.rule, addresses)
	all := gateway.New(gateway.Config{Groups: e.scene.Groups})
	if err := all.Apply(map[string]gateway.Spec{"edge": e.spec}); err != nil {
		e.t.Fatal(err)
	}
	stop := gatewaytest.Run(e.t, all)
	e.stop = func() { stop(); e.scene.Stop() }
}

func (e *edge) say(outcomes ...probe.Outcome) {
	e.t.Helper()
	say := map[string]probe.Outcome{}
	for i, o := range outcomes {
		say[names[i]] = o
	}
	e.scene.Say(say)
}

// serve waits until the servers get requests that should, and no others.
func (e *edge) serve(want ...string) {
	e.t.Helper()
	testsync.Until(e.t, "requests to "+strings.Join(want, ", "), func() bool {
		before := map[string]int64{}
		for _, b := range e.backends {
			before[b.Name] = b.Hits.Load()
		}
		e.load.Pass(e.t, 40)
		is := map[string]bool{}
		for _, b := range e.backends {
			is[b.Name] = b.Hits.Load() > before[b.Name]
		}
		for _, name := range names {
			if is[name] != strings.Contains(strings.Join(want, " "), name) {
				return false
			}
		}
		return true
	})
}

// failed returns how many requests have failed since the last call.
func (e *edge) failed(during string) int {
	_, failed, how := e.load.Take()
	if failed > 0 {
		e.t.Logf("%s: %d failed: %s", during, failed, how)
	}
	return failed
}

// whole checks that no request has failed.
func (e *edge) whole(during string) {
	e.t.Helper()
	if n := e.failed(during); n > 0 {
		e.t.Errorf("%s: %d requests failed", during, n)
	}
}

// No client notices that a server is killed, hangs, or ends.
func TestNoRequestFailsWhileServersChange(t *testing.T) {
	both(t, group.Rule{}, func(e *edge) {
		e.serve("web-1", "web-2", "web-3")
		e.backends[0].Kill()
		e.load.Pass(e.t, 100)
		e.say(probe.Failure, probe.Success, probe.Success)
		e.serve("web-2", "web-3")
		e.whole("kill")
		e.backends[0].Start(e.t)
		e.say(probe.Success, probe.Success, probe.Success)
		e.serve("web-1", "web-2", "web-3")
		e.whole("start")
		e.backends[1].Hang(true)
		before := e.backends[1].Hits.Load()
		testsync.Until(e.t, "requests that hang", func() bool { return e.backends[1].Hits.Load() > before })
		e.say(probe.Success, probe.Failure, probe.Success)
		e.serve("web-1", "web-3")
		e.backends[1].Hang(false)
		e.say(probe.Success, probe.Success, probe.Success)
		e.serve("web-1", "web-2", "web-3")
		e.whole("hang")
		e.scene.Leave("web-3")
		e.serve("web-1", "web-2")
		e.backends[2].Kill()
		e.load.Pass(e.t, 100)
		e.whole("drain")
	})
}

// Sonde is killed, and started again behind a probe that answers late: the server that was
// out stays out, and the others stay in.
func TestNothingChangesWhileSondeKnowsNothing(t *testing.T) {
	both(t, group.Rule{}, func(e *edge) {
		e.say(probe.Failure, probe.Success, probe.Success)
		e.serve("web-2", "web-3")
		out := e.backends[0].Hits.Load()
		e.failed("failure") // requests that a server was answering when it went down
		e.stop()
		e.load.Pass(e.t, 500)
		e.whole("Sonde is away")
		e.start()
		e.load.Pass(e.t, 3000) // a second and more
		e.say(probe.Failure, probe.Success, probe.Unknown)
		e.load.Pass(e.t, 500)
		e.serve("web-2", "web-3")
		e.say(probe.Failure, probe.Success, probe.Success)
		e.load.Pass(e.t, 500)
		e.whole("Sonde is back")
		if n := e.backends[0].Hits.Load() - out; n > 0 {
			e.t.Errorf("the server that is down got %d requests", n)
		}
	})
}

func TestWithPanicAllAreUsedWhenNoneIsReady(t *testing.T) {
	for _, share := range []probe.Share{0, 0.01} {
		t.Run(fmt.Sprint("panic ", share), func(t *testing.T) {
			both(t, group.Rule{Panic: share}, func(e *edge) {
				e.serve("web-1", "web-2", "web-3")
				e.say(probe.Failure, probe.Failure, probe.Failure)
				if share > 0 {
					e.serve("web-1", "web-2", "web-3")
					e.failed("the first two go down")
					e.load.Pass(e.t, 3000)
					e.whole("panic")
					return
				}
				testsync.Until(e.t, "failures", func() bool { return e.failed("all are down") > 0 })
				e.say(probe.Success, probe.Failure, probe.Failure)
				e.serve("web-1")
			})
		})
	}
}

// A degraded server gets a quarter of what the others get.
func TestADegradedServerGetsItsShare(t *testing.T) {
	both(t, group.Rule{DegradedWeight: 0.25}, func(e *edge) {
		e.say(probe.Warning, probe.Success, probe.Success)
		const want = 25.0 / 225
		var share float64
		for range 5 { // HAProxy may not have heard of it yet
			e.load.Take()
			e.load.Pass(e.t, 3000)
			served, failed, _ := e.load.Take()
			share = float64(served["web-1"]) / float64(served["web-1"]+served["web-2"]+served["web-3"])
			if failed > 0 {
				e.t.Errorf("%d requests failed", failed)
			}
			if math.Abs(share-want) <= 0.03 {
				return
			}
		}
		e.t.Errorf("the share is %.3f, want %.3f", share, want)
	})
}

// A new HAProxy takes all servers for ready. It learns otherwise within a second.
func TestANewHAProxyLearnsWhoIsDown(t *testing.T) {
	both(t, group.Rule{}, func(e *edge) {
		e.say(probe.Failure, probe.Success, probe.Success)
		e.serve("web-2", "web-3")
		e.haproxy.Kill()
		e.haproxy.Start()
		e.serve("web-2", "web-3")
	})
}
