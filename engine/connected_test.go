package engine_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-probe/sonde/engine"
	"github.com/sonde-probe/sonde/probe"
)

// noResponse is the result of an attempt whose connection was accepted by the target, which then did not respond.
func noResponse(r probe.Reason) probe.Result {
	res := probe.Fail(r, "")
	res.Timings.Connect, res.Timings.Connected = time.Millisecond, true
	return res
}

// A shared database hangs, and so does every /healthz. The network works.
func TestTargetsThatConnectAndDoNotRespondFailTogether(t *testing.T) {
	for _, reason := range []probe.Reason{probe.ReasonHTTPTimeout, probe.ReasonTLSTimeout, probe.ReasonTCPTimeout, "plugin.redis.timeout"} {
		for _, threshold := range []int32{1, 3} {
			t.Run(fmt.Sprint(reason, " ", threshold), func(t *testing.T) {
				bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
					n := &network{broken: map[string]probe.Result{}}
					rule := probe.Rule{Period: 10 * time.Second, Timeout: time.Second, FailureThreshold: threshold}
					probeTargets(t, e, n, rule, 100, remote)
					pass(3 * rule.Period)
					for i := range 100 {
						n.fallSilent(remote(i), noResponse(reason))
					}
					pass(time.Duration(threshold+1)*rule.Period + rule.Timeout)
					if got := failing(e); got != 100 || e.Health().Isolated {
						t.Errorf("%d targets fail after threshold + 1 periods, want all; isolated: %v", got, e.Health().Isolated)
					}
				})
			})
		}
	}
}

// The attempts in flight are connected when a link is cut; later ones do not connect.
func TestALinkThatIsCutAfterConnectionsFailsNothing(t *testing.T) {
	reachable(t, engine.Config{}, remote, func(t *testing.T, e *engine.Engine, n *network) {
		before := changes(e)
		for i := range 40 {
			n.fallSilent(remote(i), noResponse(probe.ReasonHTTPTimeout))
		}
		pass(900 * time.Millisecond)
		n.fail(probe.ReasonTCPTimeout, false)
		pass(time.Minute)
		if got := changes(e) - before; got != 0 || !e.Health().Isolated {
			t.Errorf("verdicts have changed %d times; isolated: %v", got, e.Health().Isolated)
		}
	})
}

// A link recovers: an attempt that began before connects late, after a retransmission, and then runs into its timeout.
func TestAConnectionThatComesLateFailsNothing(t *testing.T) {
	reachable(t, engine.Config{}, remote, func(t *testing.T, e *engine.Engine, n *network) {
		before := changes(e)
		n.fail(probe.ReasonTCPTimeout, false)
		pass(10 * time.Second)
		late := noResponse(probe.ReasonHTTPTimeout)
		late.Timings.Connect = 500 * time.Millisecond // the timeout is 900 ms
		for i := range 40 {
			n.fallSilent(remote(i), late)
		}
		n.fail("", false)
		pass(2 * time.Second)
		if got := changes(e) - before; got != 0 || !e.Health().Isolated {
			t.Errorf("verdicts have changed %d times; isolated: %v", got, e.Health().Isolated)
		}
		for i := range 40 {
			n.answerAgain(remote(i))
		}
		pass(time.Minute)
		if got := changes(e) - before; got != 0 || e.Health().Isolated {
			t.Errorf("with the link verdicts have changed %d times; isolated: %v", got, e.Health().Isolated)
		}
	})
}

// A restart does not wait for the network if the target has responded, however late.
func TestTheExitOfACommandIsAnAnswerHoweverLate(t *testing.T) {
	reachable(t, engine.Config{}, remote, func(t *testing.T, e *engine.Engine, n *network) {
		id := probe.ID{Target: "command", Kind: probe.Readiness}
		tries := 0
		command := probe.HandlerFunc(func(context.Context, probe.Target) probe.Result {
			time.Sleep(500 * time.Millisecond)
			if tries++; tries%2 == 1 {
				return probe.Broken("plugin.trap", "")
			}
			return probe.Fail(probe.ReasonExecExit, "")
		})
		_, err := e.Change(engine.Change{Set: probe.Set{id: probe.Probe{
			Handler: command, HandlerName: "exec", Target: probe.Target{Address: "192.0.2.1"},
			Rule: probe.Rule{Period: 2 * time.Second, Timeout: 900 * time.Millisecond, FailureThreshold: 1},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		if n.fail(probe.ReasonTCPTimeout, false); e.Doubts(id) {
			t.Error("the engine is not isolated yet")
		}
		pass(5 * time.Second)
		if !e.Health().Isolated || !e.Doubts(id) || !e.Doubts(probe.ID{Target: "t3", Kind: probe.Readiness}) {
			t.Errorf("the engine is isolated: %v; not from targets without a result, or without an answer", e.Health().Isolated)
		}
		e.Report(probe.Instance{Target: "command", ID: "a", Phase: probe.Running, Since: time.Now()})
		pass(5 * time.Second)
		if st := status(t, e, id); st.Result.Took < st.Rule.Timeout || st.Result.Reason != probe.ReasonExecExit || e.Doubts(id) {
			t.Errorf("isolated from a command that has exited: %v, by %+v", e.Doubts(id), st.Result)
		}
	})
}

// endpoint is a handler with the Endpoint method f.
type endpoint struct {
	*network
	f func() string
}

func (p *endpoint) Endpoint(probe.Target) string { return p.f() }

func TestAnEndpointThatPanicsIsAnError(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := &endpoint{&network{}, func() string { panic("no endpoint") }}
		_, err := e.Apply(probe.Set{readiness: probe.Probe{Handler: h}})
		if err == nil || !strings.Contains(err.Error(), "no endpoint") {
			t.Errorf("got the error %v", err)
		}
	})
}

// Endpoint may read the engine: it is called without those locks of the engine that readers need.
func TestEndpointMayReadTheEngine(t *testing.T) {
	bubble(t, engine.Config{}, func(t *testing.T, e *engine.Engine) {
		h := &endpoint{&network{}, func() string {
			e.Stats()
			return "192.0.2.1:80"
		}}
		apply(t, e, probe.Set{readiness: probe.Probe{Handler: h}})
	})
}
